"""The allowed pairs, and which global token a long token is part of."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Coverage, Intervals, Pattern
from attnlab.core.sparse.attention import PatternOptions

PartOf = Int[Tensor, "b n"] | None  # the global token that each is part of, −1 for none


@dataclass(frozen=True, kw_only=True)
class ETCOptions(PatternOptions):
    """Global tokens first, then a long input with local attention.

    ``global_tokens``  how many of the first positions are global.
    ``radius``         how many tokens to either side a long token attends to.
    ``segment``        how many long tokens are part of one global token, without ``part_of``.
    ``own_only``       a long token attends to the global token that it is part of, and to no other.
    """

    CAUSAL: ClassVar[str] = "never"
    CAUSAL_REASON: ClassVar[str] = (
        "its global tokens attend to what comes later, and all tokens to them; "
        "take a window of the past instead, as longformer has"
    )

    global_tokens: Count = 16
    radius: Count = 84
    segment: Size = 16
    own_only: bool = False

    def allowed(self, heads: int) -> Pattern:
        return self.structure()

    def structure(self, part_of: PartOf = None) -> Pattern:
        """The four pieces as one pattern; for ``part_of`` see ``members``."""
        t, long = self.global_tokens, patterns.local(self.radius).shifted(self.global_tokens)
        if not t:
            return long
        rows, columns = patterns.edges(t, of="row"), patterns.edges(t, of="column")
        if not self.own_only:
            return rows | columns | long
        if part_of is None:
            return rows | Segments(t, self.segment) | long
        i = torch.arange(part_of.shape[-1], device=part_of.device)
        return rows | columns & patterns.document(torch.where(i < t, i, part_of)) | long


DEFAULT = ETCOptions()


@patterns.readable
@dataclass(frozen=True, repr=False)
class Segments(Pattern):
    """Each run of ``size`` long tokens attends to one of the ``tokens`` global ones before it."""

    tokens: int
    size: int

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"each run of {self.size} positions attends to its own of the first {self.tokens}"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"Segments({self.tokens}, {self.size})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return (i >= self.tokens) & (j == _own(i, self.tokens, self.size))

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        low, high = (_own(i, self.tokens, self.size) for i in (rows.first, rows.last))
        one = (rows.first >= self.tokens) & (low == high) & columns.single
        some = (rows.last >= self.tokens) & (columns.first <= high) & (columns.last >= low)
        return Coverage(one & (columns.first == low), some)


def _own(i: Tensor, tokens: int, size: int) -> Tensor:
    """The global token of i: one for each run of ``size``; the last one takes all that remain."""
    return ((i - tokens).clamp(min=0) // size).clamp(max=tokens - 1)


def members(
    n: int, options: ETCOptions, part_of: Tensor | None, device: torch.device
) -> Int[Tensor, "#b n"]:
    """The global token that each position is part of, −1 for none.

    ``part_of`` if it is given (its entries for global tokens are not used); else each run of
    ``segment`` long tokens has its own global token, and the last of these takes all that remain.
    """
    if part_of is not None:
        return part_of
    i, t = torch.arange(n, device=device), options.global_tokens
    if not t:
        return torch.full_like(i, -1)[None]
    return _own(i, t, options.segment).masked_fill(i < t, -1)[None]
