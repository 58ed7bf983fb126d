"""The options of a compressed or a local layer, and their costs."""

from dataclasses import dataclass
from typing import Literal

import sympy

from attnlab.core.card import letters
from attnlab.core.options import Options, Size
from attnlab.core.sparse.layout import ROWS
from attnlab.mechanisms.fixed.memory_compressed.slots import refuse_gaps

h, n, m, d, e, s, w, c = letters("h n m d e s w c")


@dataclass(frozen=True, kw_only=True)
class MemoryCompressedOptions(Options):
    """A compressed layer, or the local layer that it alternates with.

    ``kind``    "compressed" or "local".
    ``kernel``  w, the width of a window (compressed).
    ``stride``  s, from one window to the next (compressed).
    ``null``    whether there is a learned slot that all queries attend to (compressed).
    ``block``   the number of positions in a block (local).
    """

    kind: Literal["compressed", "local"] = "compressed"
    kernel: Size = 3
    stride: Size = 3
    null: bool = False
    block: Size = 256

    def check(self) -> None:
        if self.kind == "local" and ((self.kernel, self.stride) != (3, 3) or self.null):
            raise ValueError("a local layer compresses nothing: leave out kernel, stride, null")
        if self.kind == "compressed" and self.block != 256:
            raise ValueError("a compressed layer has no blocks: leave out block, or kind='local'")
        refuse_gaps(self.kernel, self.stride)


def flops(chosen: MemoryCompressedOptions) -> sympy.Expr:
    """FLOPs: convolutions and attention to slots, or attention within blocks (local),
    of which several may share a block of queries."""
    if chosen.kind == "local":
        return 2 * h * n * (c if chosen.block % ROWS == 0 else c + ROWS) * (d + e)
    return 2 * h * (m / s) * (w * (d**2 + e**2) + n * (d + e))


def naive_flops(chosen: MemoryCompressedOptions) -> sympy.Expr:
    """The FLOPs, except that a local layer computes all pairs and masks them."""
    return 2 * h * n * m * (d + e) if chosen.kind == "local" else flops(chosen)


def scores(chosen: MemoryCompressedOptions) -> sympy.Expr:
    """Elements in memory: weights and windows (compressed), or the dense scores (local)."""
    return h * n * m if chosen.kind == "local" else h * (n * m / s + m * w * d)
