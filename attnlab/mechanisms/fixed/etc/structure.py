"""Who sees whom, and which global token a long one is part of."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.patterns import Coverage, Intervals, Pattern


def pattern(
    *,
    global_tokens: int = 16,
    radius: int = 84,
    segment: int = 16,
    own_only: bool = False,
    part_of: Int[Tensor, "b n"] | None = None,
) -> Pattern:
    """The four pieces as one pattern; ``own_only`` shows a long token its own global token alone.

    ``segment`` and ``part_of`` say which one that is: see ``members``.
    """
    validate(global_tokens, radius, segment)
    long = patterns.local(radius).shifted(global_tokens)
    if not global_tokens:
        return long
    rows = patterns.edges(global_tokens, of="row")
    columns = patterns.edges(global_tokens, of="column")
    if own_only:
        if part_of is None:
            columns = Segments(global_tokens, segment)
        else:
            i = torch.arange(part_of.shape[-1], device=part_of.device)
            columns = columns & patterns.document(torch.where(i < global_tokens, i, part_of))
    return rows | columns | long


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
    n: int, global_tokens: int, segment: int, part_of: Tensor | None, device: torch.device
) -> Int[Tensor, "#b n"]:
    """The global token that each position is part of, −1 for none.

    ``part_of`` if it is given (what it says of global tokens is not looked at); else one for each
    run of ``segment`` long tokens, the last one for all that is left.
    """
    if part_of is not None:
        return part_of
    i = torch.arange(n, device=device)
    if not global_tokens:
        return torch.full_like(i, -1)[None]
    own = _own(i, global_tokens, segment)
    return own.masked_fill(i < global_tokens, -1)[None]


def validate(global_tokens: int, radius: int, segment: int) -> None:
    for name, size, least in (
        ("global_tokens", global_tokens, 0),
        ("radius", radius, 0),
        ("segment", segment, 1),
    ):
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
