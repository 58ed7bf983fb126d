"""Primitives that depend on the distance i − j alone."""

from dataclasses import dataclass
from typing import Annotated

import torch

from attnlab.core.patterns.algebra import Order, Primitive, makes_pattern
from attnlab.core.patterns.arguments import Argument
from attnlab.core.patterns.intervals import Coverage, Intervals


@dataclass(frozen=True, repr=False)
class Local(Primitive):
    """Each position attends to itself and ``radius`` on either side (|i − j| ≤ radius)."""

    radius: Annotated[int, Argument("whole", at_least=0, start=2)]
    says = (
        ("radius == 0", "each position attends to itself"),
        ("True", "each position attends to itself and {radius} on either side"),
    )
    rule = "abs(i - j) <= radius"

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        nearest, farthest = rows.first - columns.last, rows.last - columns.first
        every = (nearest >= -self.radius) & (farthest <= self.radius)
        return Coverage(every, (nearest <= self.radius) & (farthest >= -self.radius))


local = makes_pattern(Local)


@dataclass(frozen=True, repr=False)
class Strided(Primitive):
    """Position i attends to every ``stride``-th, counted from i ((i − j) mod stride = 0)."""

    stride: Annotated[int, Argument("whole", at_least=1, start=4)]
    says = "each position attends to every {ordinal(stride)}, counted from itself"
    rule = "(i - j) % stride == 0"
    remark = (
        (
            "stride > n",
            "a stride of {stride} is longer than the sequence of {n}: each position "
            "attends to itself alone",
        ),
    )

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        # The differences are nearest, nearest + g, … farthest, with g = gcd of the two steps.
        nearest, farthest = rows.first - columns.last, rows.last - columns.first
        g = torch.gcd(rows.step, columns.step)
        every = (g % self.stride == 0) & (nearest % self.stride == 0)
        # A multiple of the stride lies between the two differences.
        within = farthest // self.stride * self.stride >= nearest
        stride = torch.full_like(g, self.stride)
        return Coverage(every, within & (nearest % torch.gcd(g, stride) == 0))

    def order(self, m: int) -> Order | None:
        """By residue modulo the stride: positions that attend to each other become neighbours."""
        if self.stride == 1 or m < 16 * self.stride:  # too few of each residue to gain much
            return None
        runs = (torch.arange(residue, m, self.stride) for residue in range(self.stride))
        return Order(("residue", self.stride), tuple(runs))


strided = makes_pattern(Strided)
