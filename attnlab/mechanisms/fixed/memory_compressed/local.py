"""The local layer that alternates with a compressed one: a block-diagonal pattern."""

from dataclasses import dataclass
from typing import Literal

from attnlab.core import patterns
from attnlab.core.options import Size
from attnlab.core.patterns import Pattern
from attnlab.core.shapes import checked
from attnlab.core.sparse.attention import Form, PatternAttention, PatternOptions


@dataclass(frozen=True, kw_only=True)
class LocalOptions(PatternOptions):
    """Each position attends to its own block.

    ``block``  the number of positions in a block.
    """

    block: Size = 256

    def allowed(self, heads: int) -> Pattern:
        return patterns.block_diagonal(self.block)


class LocalAttention(PatternAttention):
    """Multi-head attention inside of blocks: (b, n, dim) → (b, n, dim).

    The form ``fused`` is ``auto`` of fixed patterns: on a CPU it computes block by block.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused", block: Size = 256,
    ) -> None:  # fmt: skip
        by: Form = "naive" if form == "naive" else "auto"
        super().__init__(dim, heads, LocalOptions(block=block), causal=causal, form=by)
