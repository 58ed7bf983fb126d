"""Lesson 12's checks: a rectangle, one axis, the pairs of both axes, and axial's generator."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.core import patterns
from attnlab.exercises import Verdict, check_axis, check_generator, check_neighbourhood
from attnlab.mechanisms.fixed.axial import AxialOptions
from tests.exercises.frame import answers_to


def near(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    lines, across = i // width - j // width, i % width - j % width
    return (lines.abs() <= rows) & (across.abs() <= columns)


def near_by_loops(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    def sees(a: int, b: int) -> bool:
        (up, left), (down, right) = divmod(a, width), divmod(b, width)
        return abs(up - down) <= rows and abs(left - right) <= columns

    return torch.tensor([[sees(a, b) for b in j[0].tolist()] for a in i[:, 0].tolist()])


def near_by_squares(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    """The library's square of the larger radius, cut down."""
    height = len(i) // width
    square = patterns.local_2d((height, width), max(rows, columns)).dense(len(i))
    return square & near(i, j, width, rows, columns)


def shares(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    return i // width == j // width if axis == 1 else i % width == j % width


def shares_by_the_page(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    return AxialOptions(width=width, axis=axis).pattern().dense(len(i))


def shares_by_distance(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    return (i - j) % width == 0 if axis == 0 else i // width == j // width


def attend(x: Tensor, seen: Tensor) -> Tensor:
    """Attention of x (n, d) to itself under a mask (n, n)."""
    return (x @ x.T / x.shape[1] ** 0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ x


def generator(x: Tensor, height: int, width: int) -> Tensor:
    """The exercise with masks of flat positions."""
    i = torch.arange(height * width)
    past = i <= i[:, None]
    row, column = (shares(i[:, None], i[None], width, axis) for axis in (1, 0))
    above = attend(attend(x, row), column & past)
    return attend(x, row & past) + torch.cat([above[:width] * 0, above[:-width]])


def generator_by_rows(x: Tensor, height: int, width: int) -> Tensor:
    """Row by row, in loops."""
    lines = x.view(height, width, -1)
    everything = torch.ones(width, width, dtype=torch.bool)
    complete = torch.stack([attend(line, everything) for line in lines])
    out = []
    for r, line in enumerate(lines):
        above = torch.zeros_like(line)
        for c in range(width if r else 0):
            above[c] = attend(complete[:r, c], torch.ones(r, r, dtype=torch.bool))[-1]
        out.append(attend(line, everything.tril()) + above)
    return torch.cat(out)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_neighbourhood, near),
    (check_neighbourhood, near_by_loops),
    (check_neighbourhood, near_by_squares),
    (check_neighbourhood, lambda *given: near(*given).float()),
    (check_axis, shares),
    (check_generator, generator),
    (check_generator, generator_by_rows),
    (check_axis, shares_by_the_page),
    (check_axis, shares_by_distance),
    (check_axis, lambda *given: shares(*given).int()),
]


TestAnswers = answers_to(RIGHT)
