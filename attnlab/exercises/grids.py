"""Checks of lesson 12: which pixels of an image are near each other or share a line or column."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    as_float64,
    check_arguments,
    require,
    run,
)
from attnlab.exercises.verdict import Function, Mistake, returns_verdict

# ---- a neighbourhood


def _apart(i: Tensor, j: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Lines and columns between two pixels."""
    return i // width - j // width, i % width - j % width


def _near(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    down, right = _apart(i, j, width)
    return (down.abs() <= rows) & (right.abs() <= columns)


def _wrapped(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    """A mistake: from the distance i − j alone, taken as a number of lines and a remainder."""
    apart = (i - j).abs()
    seen = torch.zeros_like(apart, dtype=torch.bool)
    for lines in range(rows + 1):
        seen |= (apart - lines * width).abs() <= columns
    return seen


def _height(i: Tensor, width: int) -> int:
    return (int(i.max()) + 1) // width


_NEAR_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "It wraps around the end of a line: i − j alone does not show whether j is the "
        "neighbour of i or the first pixel of the next line. Take i % width and j % width "
        "first, then their distance.",
        _wrapped,
    ),
    (
        "Distances are taken for total widths: `rows` and `columns` are radii, for EACH side; you "
        "use half of them.",
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
        "That is a strip: a window of consecutive positions, |i − j| ≤ columns. The pixel above is "
        "`width` positions back.",
        lambda i, j, w, rows, columns: (i - j).abs() <= columns,
    ),
    (
        "That is a longer strip: |i − j| ≤ rows·width + columns also contains everything in "
        "between, which is whole lines.",
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
        "The absolute value of the distances is missing: a negative distance is ≤ any radius, so "
        "pixels far away on one side are seen, too.",
        lambda i, j, w, rows, columns: (
            (_apart(i, j, w)[0] <= rows) & (_apart(i, j, w)[1] <= columns)
        ),
    ),
    (
        "One pixel is missing on each side: the border itself is included, ≤, not <.",
        lambda i, j, w, rows, columns: (
            (_apart(i, j, w)[0].abs() < rows) & (_apart(i, j, w)[1].abs() < columns)
        ),
    ),
    (
        "That is a diamond: the two distances are added. In a rectangle each has its own limit.",
        lambda i, j, w, rows, columns: sum(x.abs() for x in _apart(i, j, w)) <= max(rows, columns),
    ),
    (
        "It sees the past only: `j <= i` is not wanted here. Pixels below and to the right are "
        "neighbours too.",
        lambda i, j, w, rows, columns: (j <= i) & _near(i, j, w, rows, columns),
    ),
    (
        "No pixel sees itself: at distance 0 it is in its own neighbourhood.",
        lambda i, j, w, rows, columns: (i != j) & _near(i, j, w, rows, columns),
    ),
)


@returns_verdict
def check_neighbourhood(function: Function) -> str:
    """Is it the rectangle around a pixel? `near(i, j, width, rows, columns) -> (n, m)`.

    `i` (n, 1) and `j` (1, m) are integer positions of pixels in raster order, in lines of `width`.
    True where j is at most `rows` lines and at most `columns` columns away from i. Called for 5
    lines of 11 pixels with radii 2 and 3, and for 11 lines of 7 with 3 and 2.
    """
    for height, width, rows, columns in ((5, 11, 2, 3), (11, 7, 3, 2)):
        given = _grid(height, width, rows=rows, columns=columns)
        require(function, given, _near, shape="n m", known_mistakes=_NEAR_MISTAKEN)
    check_arguments(function, given)
    return "Row and column first, then distances: no neighbour is wrong at the end of a line."


def _grid(height: int, width: int, **more: int) -> Arguments:
    places = torch.arange(height * width)
    return {"i": places[:, None], "j": places[None], "width": width, **more}


# ---- an axis


def _along(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    down, right = _apart(i, j, width)
    return (right if axis == 0 else down) == 0


_AXIS_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The axes are exchanged. As in numpy: axis 1 runs along a line, so i and j share the LINE, "
        "i // width; axis 0 runs along a column.",
        lambda i, j, w, axis: _along(i, j, w, 1 - axis),
    ),
    (
        "`axis` is not used: the result is always the line.",
        lambda i, j, w, axis: _along(i, j, w, 1),
    ),
    (
        "`axis` is not used: the result is always the column.",
        lambda i, j, w, axis: _along(i, j, w, 0),
    ),
    (
        "Both axes at once: that is a cross. Use the given axis only; another layer has the other "
        "one.",
        lambda i, j, w, axis: _along(i, j, w, 0) | _along(i, j, w, 1),
    ),
    (
        "Same line AND same column is the pixel itself. Only one of the two is wanted.",
        lambda i, j, w, axis: _along(i, j, w, 0) & _along(i, j, w, 1),
    ),
    (
        "That is a window, not a line: |i − j| < width moves with i and reaches into the lines "
        "above and below. Lines begin at multiples of `width`.",
        lambda i, j, w, axis: (i - j).abs() < w if axis == 1 else (i - j) % w == 0,
    ),
    (
        "The lines are cut in the wrong place: a line has `width` pixels, and you divide by the "
        "height.",
        lambda i, j, w, axis: _along(i, j, _height(i, w), axis),
    ),
    (
        "It sees the past only: `j <= i` is not wanted here.",
        lambda i, j, w, axis: (j <= i) & _along(i, j, w, axis),
    ),
    (
        "No pixel sees itself: it is in its own line and in its own column.",
        lambda i, j, w, axis: (i != j) & _along(i, j, w, axis),
    ),
)


@returns_verdict
def check_axis(function: Function) -> str:
    """Is it one axis? `shares(i, j, width, axis) -> (n, m)`, True = in one line, or one column.

    `i` (n, 1) and `j` (1, m) are integer positions of pixels in raster order, in lines of `width`;
    `axis` is as in numpy: 1 along a line, 0 along a column. Called for 5 lines of 7 and 4 of 3.
    """
    for height, width in ((5, 7), (4, 3)):
        both = [_grid(height, width, axis=axis) for axis in (1, 0)]
        named = [_both(both, mistaken) for _, mistaken in _AXIS_MISTAKEN]
        answers = _both(both, function)
        for (sentence, _), mistaken in zip(_AXIS_MISTAKEN, named, strict=True):
            if answers is not None and mistaken is not None and torch.equal(answers, mistaken):
                raise Mistake(sentence)
        for given in both:
            require(function, given, _along, shape="n m")
    check_arguments(function, both[0])
    return "A line is a block of `width`, a column a stride of `width`: two patterns that you know."


def _both(cases: list[Arguments], function: Function) -> Tensor | None:
    """The answers for both axes: some mistakes change only one of them."""
    answers = [as_float64(run(function, given).value) for given in cases]
    found = [one for one in answers if one is not None]
    if len(found) < len(cases) or len({one.shape for one in found}) > 1:
        return None
    return torch.stack(found).bool()
