"""The algebra: a pattern, and what ``&``, ``|`` and ``~`` make of patterns."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Self

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.patterns.intervals import Coverage, Intervals
from attnlab.core.patterns.receptive_field import ReceptiveField, receptive_field

Cover = bool | None
"""True: all pairs of a block are allowed. False: none. None: mixed, or not known unlooked."""


@dataclass(frozen=True)
class Order:
    """An order of the queries in which those that see alike stand side by side.

    One run of positions after the other; no block of queries spans two runs. Queries that are in no
    run see nothing. Two orders are one if their names are.
    """

    name: Hashable
    runs: tuple[Tensor, ...] = field(compare=False)


class Pattern(ABC):
    """Who may see whom. ``description`` says it in a sentence, ``code`` as one would write it.

    A primitive defines ``allows``, for single pairs, and ``covers``, for blocks of pairs; the rest
    follows.
    """

    description: str
    code: str

    @abstractmethod
    def allows(self, i: Int[Tensor, "..."], j: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Whether the query at position i may see the key at position j.

        The answer can be broadcast with i and j; where it depends on one alone, it may have the
        shape of that one. A pattern that differs from head to head or from
        sequence to sequence puts a head axis, or a batch and a head axis, in front.
        """

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """What is allowed of blocks of pairs, many blocks at once (broadcast)."""
        unknown = torch.ones_like(rows.first + columns.first, dtype=torch.bool)
        return Coverage(~unknown, unknown)

    def sized(self, m: int) -> "Pattern":
        """The same for sequences of m positions; itself unless its meaning depends on m."""
        return self

    def order(self, m: int) -> Order | None:
        """The order of the positions that suits it; None where the natural one does."""
        return None

    def alternatives(self) -> Iterator["Pattern"]:
        """Patterns that together allow what this one allows, each with an order of its own."""
        yield self

    def of_head(self, head: int) -> "Pattern":
        """What one head sees; itself unless heads differ."""
        return self

    def heads(self) -> int | None:
        """How many heads it is for; None where all heads see the same."""
        return None

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        """A ValueError if the pattern is made for other than m keys or b sequences."""
        return None

    @property
    def key(self) -> str:
        """A text by which the pattern is found again in this process (``reading.read``)."""
        return self.code

    # ---- what follows

    def cover(self, rows: range, columns: range) -> Cover:
        """Full (True), empty (False) or mixed (None) on positions ``rows`` × ``columns``."""
        coverage = self.covers(Intervals.of(rows), Intervals.of(columns))
        if coverage.every:
            return True
        return None if coverage.some else False

    def dense(
        self, n: int, m: int | None = None, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... n m"]:
        """The mask of n queries, standing last among m keys (m = n unless said otherwise)."""
        m = n if m is None else m
        if n < 1 or m < 1:
            raise ValueError(f"a pattern needs at least one query and one key, got n={n}, m={m}")
        self.refuse_misfit(m)
        return self.sized(m).block(range(m - n, m), range(m), device)

    def block(
        self, rows: range, columns: range, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... n m"]:
        """The mask of the pairs ``rows`` × ``columns``, both given as positions."""
        i = torch.arange(rows.start, rows.stop, rows.step, device=device)
        j = torch.arange(columns.start, columns.stop, columns.step, device=device)
        allowed = self.allows(i[:, None], j[None, :])
        return allowed.expand(*allowed.shape[:-2], len(rows), len(columns))

    def causal(self) -> "Pattern":
        """What it allows of the past and the present."""
        return self & Causal()

    def blocks(self, size: int) -> "Pattern":
        """The same between blocks of positions: i sees j if i's block sees j's block."""
        return Blocks(size, self)

    def shifted(self, start: int) -> "Pattern":
        """The same from position ``start`` on, counted from there; no other pair is allowed."""
        return Shifted(start, self) if start else self

    def row(self, i: int, n: int) -> Int[Tensor, "keys"]:
        """The keys that the query at position i sees, of n."""
        if not 0 <= i < n:
            raise ValueError(f"position {i} is outside of a sequence of {n}: 0 … {n - 1}")
        self.refuse_misfit(n)
        return self.sized(n).block(range(i, i + 1), range(n)).squeeze(-2).nonzero().squeeze(-1)

    def count(self, n: int, m: int | None = None) -> int:
        """The number of allowed pairs of n queries and m keys, counted block by block."""
        m = n if m is None else m
        self.refuse_misfit(m)
        return _count(self.sized(m), n, m)

    def density(self, n: int, m: int | None = None) -> float:
        """The share of the pairs that is allowed."""
        return self.count(n, m) / (n * (n if m is None else m))

    def receptive_field(self, n: int, layers: int, *, residual: bool = True) -> ReceptiveField:
        """Which inputs can influence each output after one layer, two, … ``layers``."""
        return receptive_field(self, n, layers, residual=residual)

    def __and__(self, other: "Pattern") -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return both(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return either(self, other)

    def __invert__(self) -> "Pattern":
        return Not(self)

    def __repr__(self) -> str:
        return self.code


def both(left: Pattern, right: Pattern) -> Pattern:
    """``left & right``; what sees everything adds nothing. Several are joined from the left."""
    if isinstance(right, Full):
        return left
    if isinstance(right, And):
        return both(both(left, right.left), right.right)
    return right if isinstance(left, Full) else And(left, right)


def either(left: Pattern, right: Pattern) -> Pattern:
    """``left | right``; beside what sees everything nothing counts. Joined from the left."""
    if isinstance(left, Full) or isinstance(right, Full):
        return FULL
    if isinstance(right, Or):
        return either(either(left, right.left), right.right)
    return Or(left, right)


def _count(pattern: Pattern, n: int, m: int, size: int = 128) -> int:
    """Full blocks by their area, mixed blocks by looking, a band of rows at a time."""
    columns, total = Intervals.blocks(0, m, size), 0
    for start in range(m - n, m, size):
        rows = range(start, min(start + size, m))
        coverage = pattern.covers(Intervals.of(rows), columns)
        widths = columns.last - columns.first + 1
        total += len(rows) * int(widths[coverage.every].sum())
        mixed = coverage.some & ~coverage.every
        seen = torch.arange(m)[mixed.repeat_interleave(widths)]
        if len(seen):
            i = torch.arange(rows.start, rows.stop)[:, None]
            allowed = pattern.allows(i, seen[None, :])
            if allowed.dim() > 2:
                raise ValueError(f"{pattern} differs between heads or sequences: count them apart")
            total += int(allowed.expand(len(rows), len(seen)).sum())
    return total


# ---- compositions


@dataclass(frozen=True, repr=False)
class Composition(Pattern):
    """Two patterns, both of which are asked."""

    left: Pattern
    right: Pattern

    @property
    def code(self) -> str:  # type: ignore[override]
        sign = "&" if isinstance(self, And) else "|"
        return f"{_bracketed(self.left, type(self))} {sign} {_bracketed(self.right)}"

    @property
    def key(self) -> str:
        return f"({self.left.key}) {'&' if isinstance(self, And) else '|'} ({self.right.key})"

    def sized(self, m: int) -> Self:
        left, right = self.left.sized(m), self.right.sized(m)
        if left is self.left and right is self.right:
            return self
        return type(self)(left, right)

    def of_head(self, head: int) -> Self:
        return type(self)(self.left.of_head(head), self.right.of_head(head))

    def heads(self) -> int | None:
        return self.left.heads() or self.right.heads()

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.left.refuse_misfit(m, b)
        self.right.refuse_misfit(m, b)


@dataclass(frozen=True, repr=False)
class And(Composition):
    """Both patterns allow it."""

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"({self.left.description}) and ({self.right.description})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allows(i, j) & self.right.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self.left.covers(rows, columns) & self.right.covers(rows, columns)

    def order(self, m: int) -> Order | None:
        return self.left.order(m) or self.right.order(m)

    def alternatives(self) -> Iterator[Pattern]:
        for left in self.left.alternatives():
            for right in self.right.alternatives():
                yield both(left, right)


@dataclass(frozen=True, repr=False)
class Or(Composition):
    """At least one pattern allows it."""

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"({self.left.description}) or ({self.right.description})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allows(i, j) | self.right.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self.left.covers(rows, columns) | self.right.covers(rows, columns)

    def alternatives(self) -> Iterator[Pattern]:
        yield from self.left.alternatives()
        yield from self.right.alternatives()


@dataclass(frozen=True, repr=False)
class Not(Pattern):
    """The pattern does not allow it."""

    pattern: Pattern

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"not ({self.pattern.description})"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"~{_bracketed(self.pattern, Not)}"

    @property
    def key(self) -> str:
        return f"~({self.pattern.key})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return ~self.pattern.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return ~self.pattern.covers(rows, columns)

    def sized(self, m: int) -> "Not":
        sized = self.pattern.sized(m)
        return self if sized is self.pattern else Not(sized)

    def of_head(self, head: int) -> "Not":
        return Not(self.pattern.of_head(head))

    def heads(self) -> int | None:
        return self.pattern.heads()

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.pattern.refuse_misfit(m, b)


def _bracketed(pattern: Pattern, inside: type[Pattern] | None = None) -> str:
    """As a part of ``inside``: a method (``blocks``) binds more tightly than any operator."""
    operators = (Composition, Not) if inside in (Blocks, Shifted) else (Composition,)
    plain = not isinstance(pattern, operators) or type(pattern) is inside
    return pattern.code if plain else f"({pattern.code})"


# ---- the two that the algebra itself speaks of


@dataclass(frozen=True, repr=False)
class Full(Pattern):
    """Every position sees every position."""

    description = "every position sees every position"
    code = "full()"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=i.device)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return Coverage.known(torch.ones_like(rows.first + columns.first, dtype=torch.bool))


FULL = Full()


@dataclass(frozen=True, repr=False)
class Causal(Pattern):
    """j ≤ i."""

    description = "each position sees itself and those before it"
    code = "causal()"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return Coverage(columns.last <= rows.first, columns.first <= rows.last)


@dataclass(frozen=True, repr=False)
class Blocks(Pattern):
    """i's block of ``size`` positions sees j's block in ``of``."""

    size: int
    of: Pattern

    def __post_init__(self) -> None:
        check_integer("the size of a block", self.size, at_least=1)

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"between blocks of {self.size} positions: {self.of.description}"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"{_bracketed(self.of, Blocks)}.blocks({self.size})"

    @property
    def key(self) -> str:
        return f"({self.of.key}).blocks({self.size})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.of.allows(i // self.size, j // self.size)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self.of.covers(rows // self.size, columns // self.size)

    def sized(self, m: int) -> "Blocks":
        sized = self.of.sized(-(-m // self.size))
        return self if sized is self.of else Blocks(self.size, sized)

    def of_head(self, head: int) -> "Blocks":
        return Blocks(self.size, self.of.of_head(head))

    def heads(self) -> int | None:
        return self.of.heads()

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.of.refuse_misfit(-(-m // self.size), b)

    def alternatives(self) -> Iterator[Pattern]:
        for of in self.of.alternatives():
            yield Blocks(self.size, of)

    def order(self, m: int) -> Order | None:
        blocks = self.of.order(-(-m // self.size))
        if blocks is None:
            return None
        within = torch.arange(self.size)
        runs = ((run[:, None] * self.size + within).flatten() for run in blocks.runs)
        return Order(("blocks", self.size, blocks.name), tuple(run[run < m] for run in runs))


@dataclass(frozen=True, repr=False)
class Shifted(Pattern):
    """i − start sees j − start in ``of``; nobody before ``start`` sees or is seen."""

    start: int
    of: Pattern

    def __post_init__(self) -> None:
        check_integer("the position from which a shifted pattern starts", self.start, at_least=0)

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"from position {self.start} on, counted from there: {self.of.description}"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"{_bracketed(self.of, Shifted)}.shifted({self.start})"

    @property
    def key(self) -> str:
        return f"({self.of.key}).shifted({self.start})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        within = (i >= self.start) & (j >= self.start)
        return within & self.of.allows(self._from_start(i), self._from_start(j))

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        begins = torch.minimum(rows.first, columns.first) >= self.start
        reaches = torch.minimum(rows.last, columns.last) >= self.start
        of = self.of.covers(self._of(rows), self._of(columns))
        return Coverage(begins & of.every, reaches & of.some)

    def _from_start(self, positions: Tensor) -> Tensor:
        return (positions - self.start).clamp(min=0)

    def _of(self, intervals: Intervals) -> Intervals:
        """What lies from ``start`` on; of a span that begins before it, perhaps more."""
        first, last = self._from_start(intervals.first), self._from_start(intervals.last)
        step = torch.where(intervals.first >= self.start, intervals.step, 1)
        return Intervals(first, last, torch.where(first == last, 0, step))

    def sized(self, m: int) -> Pattern:
        if m <= self.start:
            return Not(FULL)
        sized = self.of.sized(m - self.start)
        return self if sized is self.of else Shifted(self.start, sized)

    def of_head(self, head: int) -> "Shifted":
        return Shifted(self.start, self.of.of_head(head))

    def heads(self) -> int | None:
        return self.of.heads()

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.of.refuse_misfit(m - self.start, b)

    def alternatives(self) -> Iterator[Pattern]:
        for of in self.of.alternatives():
            yield Shifted(self.start, of)

    def order(self, m: int) -> Order | None:
        order = self.of.order(m - self.start)
        if order is None:
            return None
        runs = tuple(run + self.start for run in order.runs)
        return Order(("shifted", self.start, order.name), runs)
