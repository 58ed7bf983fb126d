"""The layers of a Q-Former (``attnlab.systems.qformer``): post-norm layers of BERT's form, in which
learned queries and words share the self-attention, and the queries also attend to an image."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.architecture.feed.mlp import MLP
from attnlab.core.heads import Heads, check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.probe import note
from attnlab.mechanisms.dense.full import fused

EPSILON = 1e-12  # of the norms, as in BERT
STD = 0.02  # of the first weights at width 768


@dataclass(frozen=True, kw_only=True)
class QFormerOptions(Options):
    """The sizes of a Q-Former; the defaults are those of the paper.

    dim, layers, heads, hidden: width, layers, heads of each attention, feed-forward width.
    queries: how many vectors are made of an image.
    image_dim: width of the vectors of an image.
    every: cross-attention stands in each layer whose number, from 0 on, this divides.
    vocab: tokens of the text; None for queries alone, as in the second stage.
    max_len: the longest text.
    """

    dim: Size = 768
    layers: Size = 12
    heads: Size = 12
    hidden: Size = 3072
    queries: Size = 32
    image_dim: Size = 1408
    every: Size = 2
    vocab: Size | None = None
    max_len: Size = 512


class ImageHeads(Heads):
    """Heads whose keys and values are made of vectors of another ``width`` than the queries."""

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__(dim, heads, bias=True)
        self.width = width
        self.key, self.value = (nn.Linear(width, dim) for _ in range(2))

    def check_input(self, x: Tensor, name: str) -> None:
        width = self.dim if name == "x" else self.width
        check_input(x, name, width, self.value.weight)

    def values(self, x: Tensor) -> Tensor:
        return self.split(self.value(x), self.value_dim)


class Attended(NamedTuple):
    """What attention gives, and the keys and values of its context, for others to look at."""

    out: Float[Tensor, "b n dim"]
    keys: Float[Tensor, "b h m d"]
    values: Float[Tensor, "b h m d"]


class Attend(Layer):
    """Softmax attention of vectors (b, n, dim) to others (b, m, width), where a mask lets them."""

    def __init__(self, dim: int, heads: int, width: int | None = None) -> None:
        super().__init__()
        self.heads = (
            Heads(dim, heads, bias=True) if width is None else ImageHeads(dim, heads, width)
        )

    def forward(self, x: Tensor, context: Tensor, mask: Mask = None) -> Tensor:
        return self.attended(x, context, mask).out

    def attended(
        self, x: Tensor, context: Tensor, mask: Mask = None, before: Attended | None = None
    ) -> Attended:
        """Gives its keys and values, too; those of an earlier call may stand ``before`` them."""
        q, k, v = self.heads.projected(x, context)
        if before is not None:
            k, v = torch.cat([before.keys, k], 2), torch.cat([before.values, v], 2)
        q, k, v = note("queries", q), note("keys", k), note("values", v)
        note("mask", mask)
        return Attended(self.heads.merge(fused(q, k, v, mask=mask)), k, v)


class AttendAndKeep(Attend):
    """``Attend`` of a sequence to itself, and to what stands before it, which gives its keys and
    values as well."""

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Mask = None, before: Attended | None = None
    ) -> Attended:
        return self.attended(x, x, mask, before)


class AddNorm(nn.Module):
    """The norm of a sum: LN(x + f)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, EPSILON)

    def forward(self, x: Tensor, f: Tensor) -> Tensor:
        out: Tensor = self.norm(x + f)
        return out


class QFormerLayer(nn.Module):
    """One layer, in which queries also attend to the image where it ``crosses``."""

    def __init__(self, o: QFormerOptions, *, crosses: bool) -> None:
        super().__init__()
        text = o.vocab is not None
        self.attention, self.join = AttendAndKeep(o.dim, o.heads), AddNorm(o.dim)
        self.cross = Attend(o.dim, o.heads, o.image_dim) if crosses else None
        self.cross_join = AddNorm(o.dim) if crosses else None
        self.feed, self.feed_join = MLP(o.dim, o.hidden), AddNorm(o.dim)
        self.text_feed = MLP(o.dim, o.hidden) if text else None
        self.text_join = AddNorm(o.dim) if text else None

    def forward(self, x: Tensor, queries: int, image: Any, mask: Mask = None) -> Tensor:
        """The queries, which come first in x, and the words after them."""
        h = self.join(x, self.attention(x, mask).out)
        of_queries = self._of_queries(h[:, :queries], image)
        if x.shape[1] == queries:
            return of_queries
        return torch.cat([of_queries, self._of_text(h[:, queries:])], 1)

    def read(self, x: Tensor, image: Any) -> tuple[Tensor, Attended]:
        """The queries alone, and what attention made of them, which words may look at."""
        found = self.attention(x)
        return self._of_queries(self.join(x, found.out), image), found

    def write(self, text: Tensor, mask: Mask, before: Attended | None) -> Tensor:
        """The words alone, which look at each other and at the queries ``before`` them."""
        return self._of_text(self.join(text, self.attention(text, mask, before).out))

    def _of_queries(self, h: Tensor, image: Any) -> Tensor:
        if self.cross is not None and self.cross_join is not None:
            h = self.cross_join(h, self.cross(h, *image))
        out: Tensor = self.feed_join(h, self.feed(h))
        return out

    def _of_text(self, h: Tensor) -> Tensor:
        assert self.text_feed is not None
        assert self.text_join is not None
        out: Tensor = self.text_join(h, self.text_feed(h))
        return out


def first_std(dim: int) -> float:
    """0.02 at width 768, and at narrow widths as much more as keeps the variance of products."""
    return STD * (768 / dim) ** 0.5


def first_weights(model: nn.Module, dim: int) -> None:
    """Matrices and tables begin with the standard deviation ``first_std``; biases begin at 0."""
    std = first_std(dim)
    for part in model.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] == "queries":
            nn.init.normal_(parameter, std=std)
