"""Primitives that depend on the position of the query alone, or of the key alone."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from attnlab.core.patterns.algebra import FULL, Order, Pattern, Primitive, makes_pattern
from attnlab.core.patterns.arguments import Argument
from attnlab.core.patterns.intervals import Coverage, Intervals

LARGEST_TABLE = 2**28
"""The largest position that is looked up while the length of the sequence is not known."""


@dataclass(frozen=True, repr=False)
class Summaries(Primitive):
    """Every query attends to the last ``columns`` positions of every block of ``stride``.

    With an ``offset``, to the ``columns`` positions before the last ``offset`` of every block.
    """

    stride: Annotated[int, Argument("whole", at_least=1, start=8)]
    columns: Annotated[int, Argument("whole", at_least=1)] = 1
    offset: Annotated[int, Argument("whole", at_least=0, optional=True)] = 0
    says = (
        (
            "offset > 0",
            "each position attends to positions {stride - offset - columns} to "
            "{stride - offset - 1} of every block of {stride}",
        ),
        ("columns == 1", "each position attends to the last position of every block of {stride}"),
        (
            "True",
            "each position attends to the last {columns} positions of every block of {stride}",
        ),
    )
    rule = "(j % stride >= stride - offset - columns) & (j % stride < stride - offset)"
    invalid = (
        (
            "columns + offset > stride and offset == 0",
            "{columns} summary columns do not fit into blocks of {stride} positions",
        ),
        (
            "columns + offset > stride",
            "{columns} summary columns, {offset} before the end, do not fit into blocks of "
            "{stride} positions",
        ),
    )
    remark = (
        (
            "stride > n",
            "a stride of {stride} is longer than the sequence of {n}: its only block is not "
            "complete",
        ),
    )

    @property
    def _residues(self) -> tuple[int, int]:
        """The first and the last summary position within a block."""
        return self.stride - self.offset - self.columns, self.stride - self.offset - 1

    def _among(self, residue: Tensor) -> Tensor:
        first, last = self._residues
        return (residue >= first) & (residue <= last)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Exact for consecutive positions, and for steps that are multiples of the stride."""
        first, last = columns.first % self.stride, columns.last % self.stride
        one_block = columns.first // self.stride == columns.last // self.stride
        one_residue = columns.step % self.stride == 0
        together = one_block | one_residue | (self.columns == self.stride)
        every = together & self._among(first) & self._among(last)
        # Some key is allowed if the first summary from the beginning on is in the interval.
        ahead = torch.where(self._among(first), 0, (self._residues[0] - first) % self.stride)
        some = torch.where(one_residue, self._among(first), columns.first + ahead <= columns.last)
        return _spread(Coverage(every, some), rows)


summaries = makes_pattern(Summaries)


@dataclass(frozen=True, repr=False)
class Prefix(Primitive):
    """Every query attends to the first ``length`` positions.

    A prefix language model has the pattern ``causal() | prefix(length)``.
    """

    length: Annotated[int, Argument("whole", at_least=1, start=4)]
    says = "each position attends to the {several('first', length)}"
    rule = "j < length"
    remark = (
        (
            "length > n",
            "a prefix of {length} is longer than the sequence of {n}: every query attends "
            "to every key",
        ),
    )

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return _spread(Coverage(columns.last < self.length, columns.first < self.length), rows)


prefix = makes_pattern(Prefix)


@dataclass(frozen=True, repr=False)
class Places(Primitive):
    """``positions`` attend to all keys (``of="row"``), or all queries to them (``of="column"``).

    A negative position counts from the end of the sequence.
    """

    positions: Annotated[Sequence[int], Argument("positions", start=[0])]
    of: Annotated[str, Argument("side", start="column", named=True)]
    says = (
        ("len(positions) == 0", "no position is chosen"),
        ("of == 'column'", "every position attends to {listing(positions)}"),
        ("len(positions) == 1", "{listing(positions)} attends to every position"),
        ("True", "{listing(positions)} attend to every position"),
    )
    rule = (
        "(i in positions or i - n in positions) if of == 'row' "
        "else (j in positions or j - n in positions)"
    )
    misfit = (
        (
            "len(outside(positions, n)) > 0",
            "position {outside(positions, n)[0]} is outside of a sequence of {n}: 0 … {n - 1}",
        ),
    )

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        x = i if self.of == "row" else j
        table = self._table.to(x.device)
        # Positions before the first and after the last entry get the last one, which is False.
        return table[x.clamp(min=-1, max=len(table) - 1)]

    def to(self, device: torch.device) -> Pattern:
        vars(self)["_table"] = self._table  # made now, so that it is moved
        return super().to(device)

    @functools.cached_property
    def _table(self) -> Tensor:
        """True at the chosen positions; the last entry is False, for all positions after them."""
        if min(self.positions, default=0) < 0:
            raise ValueError("where a sequence ends depends on its length: ask pattern.sized(n)")
        if max(self.positions, default=0) > LARGEST_TABLE:
            raise ValueError(f"position {max(self.positions)} is too large: ask pattern.sized(n)")
        table = torch.zeros(max(self.positions, default=-1) + 2, dtype=torch.bool)
        table[list(self.positions)] = True
        return table

    @functools.cached_property
    def _before(self) -> Tensor:
        return torch.nn.functional.pad(self._table.long().cumsum(0), (1, 0))

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        x, other = (rows, columns) if self.of == "row" else (columns, rows)
        before = self._before  # how many chosen positions come before each
        last = len(before) - 1
        found = before[(x.last + 1).clamp(0, last)] - before[x.first.clamp(0, last)]
        return _spread(Coverage(found == x.last - x.first + 1, found > 0), other)

    def sized(self, m: int) -> "Places":
        self.refuse_misfit(m)
        if min(self.positions, default=0) >= 0:
            return self
        return Places(sorted({p % m for p in self.positions}), self.of)

    def order(self, m: int) -> Order | None:
        """The chosen queries alone, side by side, because each of them attends to all keys."""
        if self.of == "column" or not self.positions:
            return None
        return Order(("places", self.positions), (torch.tensor(sorted(self.positions)),))


places = makes_pattern(Places)


@dataclass(frozen=True, repr=False)
class Edges(Primitive):
    """The first and last positions attend to all keys (``"row"``), or all queries to them.

    In a sequence of at most ``first + last`` positions, these are all of them.
    """

    first: Annotated[int, Argument("whole", at_least=0, start=1)]
    last: Annotated[int, Argument("whole", at_least=0)] = 0
    of: Annotated[str, Argument("side", start="column", named=True)] = field(kw_only=True)
    says = (
        ("first + last == 0", "no position is chosen"),
        ("of == 'column'", "all attend to the {ends(first, last)}"),
        ("first + last == 1", "the {ends(first, last)} attends to every position"),
        ("True", "the {ends(first, last)} attend to every position"),
    )
    rule = "(i < first or i >= n - last) if of == 'row' else (j < first or j >= n - last)"

    def sized(self, m: int) -> Pattern:
        """The pattern as ``Places``; ``full()`` if m is at most ``first + last``."""
        if 0 < self.first + self.last >= m:
            return FULL
        return Places((*range(self.first), *range(m - self.last, m)), self.of)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        raise ValueError("where a sequence ends depends on its length: ask pattern.sized(n)")


edges = makes_pattern(Edges)


def _spread(coverage: Coverage, over: Intervals) -> Coverage:
    """The same answer for every block of the other axis."""
    shape = torch.broadcast_shapes(coverage.some.shape, over.first.shape)
    return Coverage(coverage.every.expand(shape), coverage.some.expand(shape))
