"""Who sees whom: blocks of a line or of an image, and the order in which their pixels stand."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.patterns import Coverage, Intervals, Pattern


@patterns.readable
@dataclass(frozen=True, repr=False)
class Lines(Pattern):
    """1-D local: j is in i's block of ``length`` positions, or among the ``memory`` before it."""

    length: int
    memory: int

    def __post_init__(self) -> None:
        _at_least(1, block=self.length)
        _at_least(0, memory=self.memory)

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"each position sees its block of {self.length} and the {self.memory} before it"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"Lines({self.length}, {self.memory})"

    def _first(self, i: Tensor) -> Tensor:
        return i // self.length * self.length

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        first = self._first(i)
        return (j >= first - self.memory) & (j < first + self.length)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Both ends of what is seen move on with i: the first and the last row decide."""
        first, last = self._first(rows.first), self._first(rows.last)
        every = (columns.first >= last - self.memory) & (columns.last < first + self.length)
        some = (columns.last >= first - self.memory) & (columns.first < last + self.length)
        return Coverage(every, some)


class _Place(NamedTuple):
    """Where positions in generation order stand: the corner of their rectangle, their pixel."""

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
    """2-D local, positions in generation order: i's rectangle, extended upwards and sidewards."""

    width: int
    rows: int
    columns: int
    above: int
    beside: int

    def __post_init__(self) -> None:
        _at_least(1, width=self.width, rows=self.rows, block=self.columns)
        _at_least(0, above=self.above, memory=self.beside)
        if self.columns > self.width:
            raise ValueError(
                f"a rectangle of {self.columns} columns does not fit into lines of {self.width} "
                "pixels: give a block of at most the width"
            )

    @property
    def description(self) -> str:  # type: ignore[override]
        return (
            f"each pixel of lines of {self.width} sees its rectangle of {self.rows} × "
            f"{self.columns}, {self.above} lines above it and {self.beside} columns to either side"
        )

    @property
    def code(self) -> str:  # type: ignore[override]
        numbers = (self.width, self.rows, self.columns, self.above, self.beside)
        return f"Rectangles({', '.join(map(str, numbers))})"

    def place(self, p: Tensor) -> _Place:
        """Bands of rectangles, each rectangle line by line; the last of a band may be narrower."""
        band = p // (self.rows * self.width)
        rest = p % (self.rows * self.width)
        left = rest // (self.rows * self.columns) * self.columns
        rest = rest - left * self.rows
        breadth = (self.width - left).clamp(max=self.columns)
        top = band * self.rows
        return _Place(top, left, top + rest // breadth, left + rest % breadth)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        query, key = self.place(i), self.place(j)
        lines = (key.row >= query.top - self.above) & (key.row < query.top + self.rows)
        right = query.left + self.columns + self.beside
        return lines & (key.column >= query.left - self.beside) & (key.column < right)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Between the rectangle around the keys and what all, or any, of the queries see."""
        keys = self._around(columns)
        first, last = self.place(rows.first), self.place(rows.last)
        one_band = first.top == last.top
        left, right = first.left - self.beside, last.left + self.columns + self.beside - 1
        any_sees = _Box(
            first.top - self.above,
            last.top + self.rows - 1,
            torch.where(one_band, left, 0),
            torch.where(one_band, right, self.width - 1),
        )
        all_see = _Box(
            last.top - self.above,
            first.top + self.rows - 1,
            last.left - self.beside,
            first.left + self.columns + self.beside - 1,
        )
        return Coverage(one_band & all_see.holds(keys), any_sees.meets(keys))

    def _around(self, intervals: Intervals) -> _Box:
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


def pattern(
    *,
    causal: bool = False,
    block: int = 64,
    memory: int = 64,
    width: int | None = None,
    rows: int = 1,
    above: int = 0,
) -> Pattern:
    """1-D local; with ``width``, 2-D local over positions in ``generation_order``."""
    if width is None and (rows, above) != (1, 0):
        raise ValueError(
            f"rows={rows} and above={above} belong to 2-D attention: give the width of the image, "
            "or leave them out"
        )
    seen = Lines(block, memory) if width is None else Rectangles(width, rows, block, above, memory)
    return seen.causal() if causal else seen


def generation_order(height: int, width: int, *, rows: int, block: int) -> Int[Tensor, "n"]:
    """The raster positions of an image's pixels in the order of 2-D attention.

    ``x[:, order]`` brings a sequence of pixels into it, ``y[:, order.argsort()]`` back.
    """
    _at_least(1, height=height)
    if height % rows:
        raise ValueError(
            f"rectangles of {rows} lines do not divide an image of {height}: the last ones would "
            "be of another height; choose rows among the divisors of the height"
        )
    place = Rectangles(width, rows, block, 0, 0).place(torch.arange(height * width))
    return place.row * width + place.column


def _at_least(least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name} should be at least {least}, got {size}")
