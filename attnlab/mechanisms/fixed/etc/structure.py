"""Who sees whom, and which global token a long one is part of."""

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
class GlobalLocal(PatternOptions):
    """Global tokens first, then a long input that sees its neighbourhood.

    ``global_tokens``  how many of the first positions see all and are seen by all.
    ``radius``         how many tokens a long one sees to either side.
    ``segment``        how many long tokens are part of one global token, unless that is given.
    ``own_only``       a long token sees the global token that it is part of, and no other.
    """

    CAUSAL: ClassVar[str] = "never"
    BECAUSE: ClassVar[str] = (
        "its global tokens see what comes later, and all tokens see them; "
        "take a window of the past instead"
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


DEFAULT = GlobalLocal()


@patterns.readable
@dataclass(frozen=True, repr=False)
class Segments(Pattern):
    """Each run of ``size`` long tokens sees its own of the ``tokens`` global ones before them."""

    tokens: int
    size: int

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"each run of {self.size} positions sees its own of the first {self.tokens}"

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
    """The global token of i by runs of ``size``, the last of which takes the rest."""
    return ((i - tokens).clamp(min=0) // size).clamp(max=tokens - 1)


def members(
    n: int, options: GlobalLocal, part_of: Tensor | None, device: torch.device
) -> Int[Tensor, "#b n"]:
    """The global token that each position is part of, −1 for none.

    ``part_of`` if it is given (what it says of global tokens is not looked at); else one for each
    run of ``segment`` long tokens, the last one for all that is left.
    """
    if part_of is not None:
        return part_of
    i, t = torch.arange(n, device=device), options.global_tokens
    if not t:
        return torch.full_like(i, -1)[None]
    return _own(i, t, options.segment).masked_fill(i < t, -1)[None]
