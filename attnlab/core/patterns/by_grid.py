"""Primitives of grids: positions are the cells of an image, or of a box, in raster order."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from attnlab.core.patterns.algebra import And, Blocks, Order, Pattern, Primitive, makes_pattern
from attnlab.core.patterns.arguments import Argument
from attnlab.core.patterns.by_distance import Local, Strided
from attnlab.core.patterns.intervals import Coverage, Intervals

MUST_BE_FILLED = (
    (
        "product(shape) != n",
        "a grid of {sizes(shape)} has {product(shape)} positions, but the sequence has {n}",
    ),
)


@dataclass(frozen=True, repr=False)
class Local2d(Primitive):
    """Pixels in raster order; each attends to the square of side 2·radius + 1 around it."""

    shape: Annotated[Sequence[int], Argument("grid")]
    radius: Annotated[int, Argument("whole", at_least=0, start=1)]
    says = "each pixel of {sizes(shape)} attends to the square of side {2 * radius + 1} around it"
    rule = (
        "(abs(i // shape[1] - j // shape[1]) <= radius) "
        "& (abs(i % shape[1] - j % shape[1]) <= radius)"
    )
    invalid = (
        ("len(shape) != 2", "the grid should have 2 dimensions, got the shape {written(shape)}"),
    )
    misfit = MUST_BE_FILLED

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        vertical = Local(self.radius).covers(rows // self.shape[1], columns // self.shape[1])
        return vertical & Local(self.radius).covers(self._across(rows), self._across(columns))

    def _across(self, intervals: Intervals) -> Intervals:
        """The columns of the grid that the positions lie in; all, if they are in several lines."""
        width = self.shape[1]
        one_line = intervals.first // width == intervals.last // width
        first = torch.where(one_line, intervals.first % width, 0)
        return Intervals(
            first, torch.where(one_line, intervals.last % width, width - 1), intervals.step
        )

    def order(self, m: int) -> Order | None:
        """Tile by tile, because queries near each other in the grid share most of their keys."""
        height, width = self.shape
        grid = torch.arange(height * width).view(height, width)
        tiles = (tile for band in grid.split(8) for tile in band.split(8, dim=1))
        return Order(("tiles", self.shape), tuple(tile.flatten() for tile in tiles))


local_2d = makes_pattern(Local2d)


@dataclass(frozen=True, repr=False)
class Axial(Primitive):
    """The cells of a grid in raster order; each attends to its line along ``axis``."""

    shape: Annotated[Sequence[int], Argument("grid")]
    axis: Annotated[int, Argument("whole", start=0)]
    says = (
        "each cell of {sizes(shape)} attends to those that differ from it along axis {axis} alone"
    )
    rule = (
        "((i - j) % stride_of(shape, axis) == 0) & (i // (stride_of(shape, axis) * shape[axis]) "
        "== j // (stride_of(shape, axis) * shape[axis]))"
    )
    invalid = (
        (
            "axis < -len(shape) or axis >= len(shape)",
            "a grid of shape {written(shape)} has no axis {axis}",
        ),
    )
    misfit = MUST_BE_FILLED

    @functools.cached_property
    def _parts(self) -> Pattern:
        axis = self.axis % len(self.shape)
        inner = math.prod(self.shape[axis + 1 :])
        line, along = Strided(inner), Blocks(Local(0), inner * self.shape[axis])
        if axis == 0:
            return line
        return along if inner == 1 else And(along, line)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self._parts.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self._parts.covers(rows, columns)

    def order(self, m: int) -> Order | None:
        return self._parts.order(m)


axial = makes_pattern(Axial)
