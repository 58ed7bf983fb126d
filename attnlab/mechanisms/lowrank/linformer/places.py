"""The k places: projections of the length, and which layers and heads share them."""

import math
from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import letters
from attnlab.core.options import Options, Size
from attnlab.core.shapes import Tokens, checked

OverLength = Float[Tensor, "h k m"] | Float[Tensor, "k m"]  # E or F: per head, or one for all


class Projection(nn.Module):
    """A matrix on the length: n positions → k places, one for all heads or one per head.

    Called with (b, n, dim) it gives (k, n), or (heads, k, n). ``kind`` is "linear", "mean-pool" or
    "convolution". Parameters: k·max_len, none, or s = ⌈max_len / k⌉; times ``heads`` where given.
    """

    @checked
    def __init__(
        self, k: Size, max_len: Size, *,
        kind: Literal["linear", "mean-pool", "convolution"] = "linear", heads: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if k > max_len:
            raise ValueError(f"k should lie between 1 and max_len={max_len}, got {k}")
        self.k, self.max_len, self.kind, self.heads = k, max_len, kind, heads
        self.window = -(-max_len // k)
        shape = {"linear": (k, max_len), "mean-pool": None, "convolution": (self.window,)}[kind]
        self.weight = None
        if shape is not None:
            shape = shape if heads is None else (heads, *shape)
            self.weight = nn.Parameter(torch.randn(shape) / math.sqrt(shape[-1]))

    def forward(self, x: Tokens) -> Float[Tensor, "*h k n"]:
        return KINDS[self.kind](self, x)

    def extra_repr(self) -> str:
        per_head = "" if self.heads is None else f", heads={self.heads}"
        return f"k={self.k}, max_len={self.max_len}, kind={self.kind!r}{per_head}"


def _first_columns(projection: Projection, x: Tensor) -> Tensor:
    assert projection.weight is not None
    n = x.shape[1]
    if n > projection.max_len:
        raise ValueError(
            f"the sequence has {n} positions, but this projection was made for "
            f"max_len={projection.max_len}: E has a column per position and none beyond; shorten "
            "the sequence, build with a larger max_len, or project by mean-pool or convolution"
        )
    return projection.weight[..., :n]


def _mean_windows(projection: Projection, x: Tensor) -> Tensor:
    return _windows(x.new_full((projection.window,), 1 / projection.window), x)


def _weighted_windows(projection: Projection, x: Tensor) -> Tensor:
    assert projection.weight is not None
    return _windows(projection.weight, x)


def _windows(kernel: Tensor, x: Tensor) -> Tensor:
    """(…, ⌈n/s⌉, n): a row for each window of the sequence, with the kernel (…, s) in it."""
    n, places = x.shape[1], -(-x.shape[1] // kernel.shape[-1])
    steps = torch.eye(places, dtype=kernel.dtype, device=x.device)
    return (steps[..., None] * kernel[..., None, None, :]).flatten(-2)[..., :n]


KINDS = {"linear": _first_columns, "mean-pool": _mean_windows, "convolution": _weighted_windows}

SHARING = {"none": (True, 2), "headwise": (False, 2), "key-value": (False, 1)}
"""Sharing → whether there is a matrix per head, and how many (E and F, or one) in a layer."""


@dataclass(frozen=True, kw_only=True)
class LinformerOptions(Options):
    """The k places, and the projections to them.

    ``k``           how many summaries there are: the rows of E and F.
    ``max_len``     the longest sequence.
    ``sharing``     "none", "headwise", "key-value" or "layerwise".
    ``projection``  a kind, "linear", "mean-pool" or "convolution"; or, with "layerwise", the one
                    ``Projection`` that all layers are given, whose k and max_len then count.
    ``early``       the sequence is projected before keys and values are computed.
    """

    k: Size = 128
    max_len: Size = 512
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"
    projection: Literal["linear", "mean-pool", "convolution"] | Projection = "linear"
    early: bool = False

    def check(self) -> None:
        given = isinstance(self.projection, Projection)
        if given != (self.sharing == "layerwise"):
            raise ValueError(
                "layerwise sharing is one matrix for all layers: make it once, "
                "projection=Projection(k, max_len), and give it to every layer with "
                f"sharing='layerwise' (got sharing={self.sharing!r} and "
                f"projection={self.projection!r})"
            )
        if given and (self.k, self.max_len) != (128, 512):
            raise ValueError("k and max_len are those of the given projection; leave them out here")
        if isinstance(self.projection, Projection) and self.projection.heads is not None:
            raise ValueError(
                "a layerwise projection is one for all heads; "
                f"this one was made with heads={self.projection.heads}"
            )
        if self.sharing == "none" and self.projection == "mean-pool":
            raise ValueError(
                "mean-pool has no weights, so there is nothing that heads could not share"
            )
        if self.sharing == "none" and self.early:
            raise ValueError(
                "early=True projects the sequence once for all heads, so E should be shared by "
                "them: use sharing='headwise', 'key-value' or 'layerwise'"
            )

    def projections(self, heads: int) -> tuple[Projection, Projection]:
        """E and F of one layer."""
        if isinstance(self.projection, Projection):
            return self.projection, self.projection
        per_head, kinds = SHARING[self.sharing]
        made = [
            Projection(
                self.k,
                self.max_len,
                kind=self.projection,
                heads=heads if per_head else None,
            )
            for _ in range(kinds)
        ]
        return made[0], made[-1]

    def places(self, n: sympy.Expr) -> sympy.Expr:
        """How many places n positions have: k, or one for each window of ⌈max_len / k⌉."""
        k, max_len = letters("k max_len")
        if self.projection in ("mean-pool", "convolution"):
            return n * k / max_len
        return k
