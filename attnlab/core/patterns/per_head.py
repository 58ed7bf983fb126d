"""One pattern for each head."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.patterns.algebra import Pattern
from attnlab.core.patterns.intervals import Coverage, Intervals


@dataclass(frozen=True, repr=False)
class PerHead(Pattern):
    """One pattern per head; the mask has a head axis, (h, n, m)."""

    patterns: tuple[Pattern, ...]

    @property
    def description(self) -> str:  # type: ignore[override]
        return "; ".join(f"head {h}: {p.description}" for h, p in enumerate(self.patterns))

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"per_head({', '.join(p.code for p in self.patterns)})"

    @property
    def key(self) -> str:
        return f"per_head({', '.join(p.key for p in self.patterns)})"

    def __post_init__(self) -> None:
        for head, pattern in enumerate(self.patterns):
            if not isinstance(pattern, Pattern):
                raise TypeError(f"per_head takes patterns, got {pattern!r} for head {head}")
            if pattern.heads() is not None:
                raise ValueError(f"the pattern of head {head} is itself for several heads")

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        pairs = torch.broadcast_shapes(i.shape, j.shape)
        seen = [p.allows(i, j) for p in self.patterns]
        if all(allowed.dim() <= len(pairs) for allowed in seen):
            return torch.stack([allowed.expand(pairs) for allowed in seen])
        # Some masks differ between sequences, and have the shape (b, 1, …).
        front = torch.broadcast_shapes(*(allowed.shape[: -len(pairs)] for allowed in seen))
        return torch.cat([allowed.expand(*front, *pairs) for allowed in seen], dim=1)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        covers = [p.covers(rows, columns) for p in self.patterns]
        every = functools.reduce(torch.logical_and, (c.every for c in covers))
        return Coverage(every, functools.reduce(torch.logical_or, (c.some for c in covers)))

    def sized(self, m: int) -> "PerHead":
        patterns = tuple(p.sized(m) for p in self.patterns)
        same = all(new is old for new, old in zip(patterns, self.patterns, strict=True))
        return self if same else PerHead(patterns)

    def of_head(self, head: int) -> Pattern:
        if not 0 <= check_integer("head", head) < len(self.patterns):
            raise ValueError(f"there is no head {head}: the pattern is for {len(self.patterns)}")
        return self.patterns[head]

    def heads(self) -> int | None:
        return len(self.patterns)

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        if heads is not None and heads != len(self.patterns):
            raise ValueError(
                f"the pattern is for {len(self.patterns)} heads, but there are {heads}"
            )
        for pattern in self.patterns:
            pattern.refuse_misfit(m, b)

    def remarks(self, m: int) -> Iterator[str]:
        for pattern in self.patterns:
            yield from pattern.remarks(m)


def per_head(*patterns: Pattern) -> Pattern:
    """One pattern for each head, in order."""
    if not patterns:
        raise ValueError("per_head needs a pattern for each head, got none")
    return PerHead(patterns)
