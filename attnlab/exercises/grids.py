"""Checks of lesson 12: who stands near whom in an image, and who shares a line or a column."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import Given, Suspect, ask, demand, untouched
from attnlab.exercises.verdict import Function, Mistake, diagnosed

# ---- a neighbourhood


def _apart(i: Tensor, j: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Lines and columns between two pixels."""
    return i // width - j // width, i % width - j % width


def _near(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    down, right = _apart(i, j, width)
    return (down.abs() <= rows) & (right.abs() <= columns)


def _wrapped(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    """From the distance i − j alone: a number of lines, and the rest."""
    apart = (i - j).abs()
    seen = torch.zeros_like(apart, dtype=torch.bool)
    for lines in range(rows + 1):
        seen |= (apart - lines * width).abs() <= columns
    return seen


def _height(i: Tensor, width: int) -> int:
    return (int(i.max()) + 1) // width


_NEAR_MISTAKEN: tuple[Suspect, ...] = (
    (
        "It wraps around the end of a line: i − j alone does not tell a pixel's neighbour from the "
        "first pixel of the next line. Take i % width and j % width first, then their distance.",
        _wrapped,
    ),
    (
        "Distances are taken for total widths: `rows` and `columns` are radii, so many to EACH "
        "side, and you give half of them.",
        lambda i, j, w, rows, columns: _near(i, j, w, rows // 2, columns // 2),
    ),
    (
        "`rows` and `columns` are exchanged: i // width is the row (the line), i % width the "
        "column.",
        lambda i, j, w, rows, columns: _near(i, j, w, columns, rows),
    ),
    (
        "The lines are cut in the wrong place: a line has `width` pixels, so i // width is its "
        "number. You divide by the height.",
        lambda i, j, w, rows, columns: _near(i, j, _height(i, w), rows, columns),
    ),
    (
        "That is a strip: a window of places in a row, |i − j| ≤ columns. The pixel above stands "
        "`width` places back.",
        lambda i, j, w, rows, columns: (i - j).abs() <= columns,
    ),
    (
        "That is a longer strip: |i − j| ≤ rows·width + columns has everything in between as well, "
        "whole lines of it.",
        lambda i, j, w, rows, columns: (i - j).abs() <= rows * w + columns,
    ),
    (
        "That is a cross of bands: near in the row OR near in the column. A neighbour is near in "
        "both: `&`.",
        lambda i, j, w, rows, columns: (
            (_apart(i, j, w)[0].abs() <= rows) | (_apart(i, j, w)[1].abs() <= columns)
        ),
    ),
    (
        "Only the rows are compared: nothing keeps the columns near.",
        lambda i, j, w, rows, columns: _apart(i, j, w)[0].abs() <= rows,
    ),
    (
        "Only the columns are compared: nothing keeps the rows near.",
        lambda i, j, w, rows, columns: _apart(i, j, w)[1].abs() <= columns,
    ),
    (
        "It sees one side alone, what is above and to the left, and everything far below as well: "
        "the distances have lost their absolute value.",
        lambda i, j, w, rows, columns: (
            (_apart(i, j, w)[0] <= rows) & (_apart(i, j, w)[1] <= columns)
        ),
    ),
    (
        "One side is short by one: the border itself belongs to it, ≤, not <.",
        lambda i, j, w, rows, columns: (
            (_apart(i, j, w)[0].abs() < rows) & (_apart(i, j, w)[1].abs() < columns)
        ),
    ),
    (
        "That is a diamond: the two distances are added. In a rectangle each has a limit of its "
        "own.",
        lambda i, j, w, rows, columns: sum(x.abs() for x in _apart(i, j, w)) <= max(rows, columns),
    ),
    (
        "It sees the past alone: `j <= i` is not asked for here. Below and to the right are "
        "neighbours too.",
        lambda i, j, w, rows, columns: (j <= i) & _near(i, j, w, rows, columns),
    ),
    (
        "Nobody sees itself: at a distance of 0 a pixel is in its own neighbourhood.",
        lambda i, j, w, rows, columns: (i != j) & _near(i, j, w, rows, columns),
    ),
)


@diagnosed
def check_neighbourhood(function: Function) -> str:
    """Is it the rectangle around a pixel? `near(i, j, width, rows, columns) -> (n, m)`.

    `i` (n, 1) and `j` (1, m) are whole places of pixels in raster order, lines of `width`; True
    where j is at most `rows` lines and at most `columns` columns away from i. Called for 5 lines of
    11 pixels with radii 2 and 3, and for 11 lines of 7 with 3 and 2.
    """
    for height, width, rows, columns in ((5, 11, 2, 3), (11, 7, 3, 2)):
        given = _grid(height, width, rows=rows, columns=columns)
        demand(function, given, _near, shape="n m", suspects=_NEAR_MISTAKEN)
    untouched(function, given)
    return "Row and column first, then distances: no neighbour is lost at the end of a line."


def _grid(height: int, width: int, **more: int) -> Given:
    places = torch.arange(height * width)
    return {"i": places[:, None], "j": places[None], "width": width, **more}


# ---- an axis


def _along(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    down, right = _apart(i, j, width)
    return (right if axis == 0 else down) == 0


_AXIS_MISTAKEN: tuple[Suspect, ...] = (
    (
        "The axes are exchanged. As in numpy: axis 1 runs along a line, so i and j share the LINE, "
        "i // width; axis 0 runs along a column.",
        lambda i, j, w, axis: _along(i, j, w, 1 - axis),
    ),
    (
        "`axis` is not used: that is the line, whichever is asked for.",
        lambda i, j, w, axis: _along(i, j, w, 1),
    ),
    (
        "`axis` is not used: that is the column, whichever is asked for.",
        lambda i, j, w, axis: _along(i, j, w, 0),
    ),
    (
        "Both axes at once: that is a cross. One axis at a time; the other one has a layer of its "
        "own.",
        lambda i, j, w, axis: _along(i, j, w, 0) | _along(i, j, w, 1),
    ),
    (
        "Same line AND same column is the pixel itself. One of the two is asked for.",
        lambda i, j, w, axis: _along(i, j, w, 0) & _along(i, j, w, 1),
    ),
    (
        "A window is no line: |i − j| < width moves along with i and reaches into the lines above "
        "and below. Lines begin at multiples of `width`.",
        lambda i, j, w, axis: (i - j).abs() < w if axis == 1 else (i - j) % w == 0,
    ),
    (
        "The lines are cut in the wrong place: a line has `width` pixels, and you divide by the "
        "height.",
        lambda i, j, w, axis: _along(i, j, _height(i, w), axis),
    ),
    (
        "It sees the past alone: `j <= i` is not asked for here.",
        lambda i, j, w, axis: (j <= i) & _along(i, j, w, axis),
    ),
    (
        "Nobody sees itself: a pixel stands in its own line and in its own column.",
        lambda i, j, w, axis: (i != j) & _along(i, j, w, axis),
    ),
)


@diagnosed
def check_axis(function: Function) -> str:
    """Is it one axis? `shares(i, j, width, axis) -> (n, m)`, True = in one line, or one column.

    `i` (n, 1) and `j` (1, m) are whole places of pixels in raster order, lines of `width`; `axis`
    is numpy's: 1 runs along a line, 0 along a column. Called for 5 lines of 7 and 4 lines of 3.
    """
    for height, width in ((5, 7), (4, 3)):
        both = [_grid(height, width, axis=axis) for axis in (1, 0)]
        named = [_both(both, mistaken) for _, mistaken in _AXIS_MISTAKEN]
        told = _both(both, function)
        for (sentence, _), answers in zip(_AXIS_MISTAKEN, named, strict=True):
            if told is not None and answers is not None and torch.equal(told, answers):
                raise Mistake(sentence)
        for given in both:
            demand(function, given, _along, shape="n m")
    untouched(function, both[0])
    return "A line is a block of `width`, a column a stride of it: two patterns that you know."


def _both(cases: list[Given], function: Function) -> Tensor | None:
    """The answers for both axes side by side: a mistake may show in one of them alone."""
    answers = [ask(function, given).value for given in cases]
    if not all(isinstance(one, Tensor) and one.shape == answers[0].shape for one in answers):  # type: ignore[attr-defined]
        return None
    return torch.stack([one.bool() for one in answers])  # type: ignore[attr-defined]
