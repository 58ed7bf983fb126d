"""The layers of VLMo (``attnlab.systems.vlmo``): one attention for all, and feed-forward layers,
each with a norm of its own, for text, for images, and in the last layers for pairs of both."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.join import layer_scale
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.probe import note
from attnlab.mechanisms.dense.full import fused
from attnlab.systems.qformer_layers import Attend

Modality = Literal["text", "image"]
Top = Literal["own", "pair"]
Route = tuple[tuple[Modality, int], ...]
"""What a sequence is made of, one piece after the other: its modality and its length."""


@dataclass(frozen=True, kw_only=True)
class VLMoOptions(Options):
    """The sizes of a VLMo; the defaults are those of the base model.

    dim, layers, heads, hidden: width, layers, heads of each attention, feed-forward width.
    pairs: how many of the layers, the last ones, have an expert for pairs.
    vocab, max_len: tokens of the text, and the longest one.
    features, patches: numbers of a patch, and how many patches an image has.
    scale: what a sublayer adds counts so much before training.
    shared: one attention for text and images; False is the control, in which each has projections
        of its own, and still sees the other.
    """

    dim: Size = 768
    layers: Size = 12
    heads: Size = 12
    hidden: Size = 3072
    pairs: Size = 2
    vocab: Size = 30_522
    max_len: Size = 40
    features: Size = 768
    patches: Size = 196
    scale: float = 0.1
    shared: bool = True
    epsilon: float = 1e-6

    def check(self) -> None:
        if self.pairs > self.layers:
            raise ValueError(
                f"pairs should be at most the number of layers, {self.layers}, got {self.pairs}"
            )
        for name in ("scale", "epsilon"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} should be above 0 and at most 1, got {getattr(self, name)}"
                )


class Expert(nn.Module):
    """A feed-forward layer with the norm in front of it: FFN(LN(x))."""

    def __init__(self, o: VLMoOptions) -> None:
        super().__init__()
        self.norm, self.feed = nn.LayerNorm(o.dim, o.epsilon), MLP(o.dim, o.hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.feed(self.norm(x))
        return out


class ApartAttention(Layer):
    """Softmax attention of all positions to all, to which each modality has projections of its own.

    This is the control of VLMo: text and images still see each other.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads: Any = nn.ModuleDict(
            {name: Heads(dim, heads, bias=True) for name in ("text", "image")}
        )

    def forward(self, x: Tensor, route: Route, mask: Mask = None) -> Tensor:
        own = [self.heads[name].projected(piece) for name, piece in pieces(x, route)]
        q, k, v = (torch.cat(each, 2) for each in zip(*own, strict=True))
        q, k, v = note("queries", q), note("keys", k), note("values", v)
        note("mask", mask)
        read = pieces(fused(q, k, v, mask=mask), route, 2)
        return torch.cat([self.heads[name].merge(piece) for name, piece in read], 1)


class VLMoLayer(nn.Module):
    """x + g₁ attend(LN x), then x + g₂ FFN_m(LN_m x), with m the modality or "pair".

    pairs: whether this layer has the expert for pairs.
    """

    def __init__(self, o: VLMoOptions, *, pairs: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(o.dim, o.epsilon)
        self.attention: Any = (Attend if o.shared else ApartAttention)(o.dim, o.heads)
        self.attention_scale = nn.Parameter(torch.full((o.dim,), o.scale))
        self.feed_scale = nn.Parameter(torch.full((o.dim,), o.scale))
        names = ("text", "image", "pair") if pairs else ("text", "image")
        self.experts: Any = nn.ModuleDict({name: Expert(o) for name in names})
        self.shared, self.pairs = o.shared, pairs

    def forward(self, x: Tensor, route: Route, mask: Mask = None, top: Top = "own") -> Tensor:
        """The layer for a sequence of these pieces; with the top "pair" all of it is computed by
        the expert for pairs, where the layer has one."""

        def attend(read: Tensor) -> Tensor:
            other = read if self.shared else route
            out: Tensor = self.attention(read, other, mask)
            return out

        x = layer_scale.naive(x, attend, self.norm, self.attention_scale)
        return x + self.feed_scale * self._fed(x, route, top)

    def _fed(self, x: Tensor, route: Route, top: Top) -> Tensor:
        if top == "pair" and self.pairs:
            out: Tensor = self.experts["pair"](x)
            return out
        return torch.cat([self.experts[name](piece) for name, piece in pieces(x, route)], 1)


def pieces(x: Tensor, route: Route, axis: int = 1) -> list[tuple[Modality, Tensor]]:
    """The pieces of x along an axis with their modalities, but for empty ones."""
    cut = x.split([count for _, count in route], axis)
    return [(name, piece) for (name, count), piece in zip(route, cut, strict=True) if count]
