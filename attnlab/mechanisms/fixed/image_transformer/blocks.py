"""The patterns: blocks of a line or of an image, and the order of their pixels."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.integers import check_integer
from attnlab.core.patterns import Coverage, Intervals, Pattern


@patterns.readable
@dataclass(frozen=True, repr=False)
class Lines(Pattern):
    """1-D local: j is in i's block of ``length``, or among the ``memory`` positions before it."""

    length: int
    memory: int

    def __post_init__(self) -> None:
        check_integer("length", self.length, at_least=1)
        check_integer("memory", self.memory, at_least=0)

    @property
    def description(self) -> str:  # type: ignore[override]
        return (
            f"each position attends to its block of {self.length} and the {self.memory} before it"
        )

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"Lines({self.length}, {self.memory})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        first = i // self.length * self.length
        return (j >= first - self.memory) & (j < first + self.length)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """First and last allowed key grow with i, so only the first and last rows are compared."""
        first, last = (i // self.length * self.length for i in (rows.first, rows.last))
        every = (columns.first >= last - self.memory) & (columns.last < first + self.length)
        some = (columns.last >= first - self.memory) & (columns.first < last + self.length)
        return Coverage(every, some)


class _Place(NamedTuple):
    """The upper left corner of a position's rectangle, and its own pixel."""

    top: Tensor
    left: Tensor
    row: Tensor
    column: Tensor


class _Box(NamedTuple):
    """A rectangle of pixels, all four sides included."""

    top: Tensor
    bottom: Tensor
    left: Tensor
    right: Tensor

    def meets(self, other: "_Box") -> Tensor:
        lines = (self.top <= other.bottom) & (other.top <= self.bottom)
        return lines & (self.left <= other.right) & (other.left <= self.right)

    def holds(self, other: "_Box") -> Tensor:
        lines = (self.top <= other.top) & (other.bottom <= self.bottom)
        return lines & (self.left <= other.left) & (other.right <= self.right)


@patterns.readable
@dataclass(frozen=True, repr=False)
class Rectangles(Pattern):
    """2-D local: i's rectangle of ``rows`` × ``columns``, ``above`` lines over it and ``memory``
    columns to either side; positions are in generation order."""

    width: int
    rows: int
    columns: int
    above: int
    memory: int

    def __post_init__(self) -> None:
        for name, least in {"width": 1, "rows": 1, "columns": 1, "above": 0, "memory": 0}.items():
            check_integer(name, getattr(self, name), at_least=least)
        if self.columns > self.width:
            raise ValueError(
                f"a rectangle of {self.columns} columns does not fit into lines of {self.width} "
                "pixels: give a block of at most the width"
            )

    @property
    def description(self) -> str:  # type: ignore[override]
        return (
            f"each pixel of lines of {self.width} attends to its rectangle of {self.rows} × "
            f"{self.columns}, {self.above} lines above it and {self.memory} columns to either side"
        )

    @property
    def code(self) -> str:  # type: ignore[override]
        numbers = (self.width, self.rows, self.columns, self.above, self.memory)
        return f"Rectangles({', '.join(map(str, numbers))})"

    def place(self, p: Tensor) -> _Place:
        """Where position p lies: band by band, rectangle by rectangle, and line by line inside it.

        The last rectangle of a band may be narrower.
        """
        band, rest = p // (self.rows * self.width), p % (self.rows * self.width)
        left = rest // (self.rows * self.columns) * self.columns
        breadth = (self.width - left).clamp(max=self.columns)
        inside = rest - left * self.rows
        top = band * self.rows
        return _Place(top, left, top + inside // breadth, left + inside % breadth)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        query, key = self.place(i), self.place(j)
        lines = (key.row >= query.top - self.above) & (key.row < query.top + self.rows)
        right = query.left + self.columns + self.memory
        return lines & (key.column >= query.left - self.memory) & (key.column < right)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Compares the box of the keys with the boxes that any query, and that all queries, see."""
        keys = self._around(columns)
        first, last = self.place(rows.first), self.place(rows.last)
        one_band = first.top == last.top
        left, right = first.left - self.memory, last.left + self.columns + self.memory - 1
        any_sees = _Box(
            first.top - self.above,
            last.top + self.rows - 1,
            torch.where(one_band, left, 0),
            torch.where(one_band, right, self.width - 1),
        )
        all_see = _Box(
            last.top - self.above,
            first.top + self.rows - 1,
            last.left - self.memory,
            first.left + self.columns + self.memory - 1,
        )
        return Coverage(one_band & all_see.holds(keys), any_sees.meets(keys))

    def _around(self, intervals: Intervals) -> _Box:
        """A box that contains all positions from the first to the last."""
        first, last = self.place(intervals.first), self.place(intervals.last)
        one_band = first.top == last.top
        one_block = one_band & (first.left == last.left)
        one_line = one_block & (first.row == last.row)
        right = (last.left + self.columns).clamp(max=self.width) - 1
        return _Box(
            torch.where(one_block, first.row, first.top),
            torch.where(one_block, last.row, last.top + self.rows - 1),
            torch.where(one_line, first.column, torch.where(one_band, first.left, 0)),
            torch.where(one_line, last.column, torch.where(one_band, right, self.width - 1)),
        )


def generation_order(height: int, width: int, *, rows: int, block: int) -> Int[Tensor, "n"]:
    """The raster positions of an image's pixels in the order of 2-D attention.

    ``x[:, order]`` reorders pixels from raster order, ``y[:, order.argsort()]`` reorders them back.
    """
    for name, size in {"height": height, "width": width, "rows": rows, "block": block}.items():
        check_integer(name, size, at_least=1)
    place = Rectangles(width, rows, block, 0, 0).place(torch.arange(height * width))
    if height % rows:
        raise ValueError(
            f"rectangles of {rows} lines do not divide an image of {height}: the last ones would "
            "be of another height; choose rows among the divisors of the height"
        )
    return place.row * width + place.column
