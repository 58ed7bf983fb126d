"""Checks of lesson 12: which pixels of an image are near each other or share a line or column, the
pairs of two axial layers, and axial attention's generator.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, sizes
from attnlab.exercises.exercise import Exercise, but

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


check_neighbourhood = Exercise(
    """Is it the rectangle around a pixel? `near(i, j, width, rows, columns) -> (n, m)`.

    `i` (n, 1) and `j` (1, m) are integer positions of pixels in raster order, in lines of `width`.
    True where j is at most `rows` lines and at most `columns` columns away from i. Called for 5
    lines of 11 pixels with radii 2 and 3, and for 11 lines of 7 with 3 and 2.
    """,
    right=_near,
    cases=lambda: [
        _grid(height, width, rows=rows, columns=columns)
        for height, width, rows, columns in sizes((5, 11, 2, 3), (11, 7, 3, 2))
    ],
    axes="n m",
    mistakes={
        _wrapped: "It wraps around the end of a line: i − j alone does not show whether j is the "
        "neighbour of i or the first pixel of the next line. Take i % width and j % width first, "
        "then their distance.",
        (lambda i, j, w, rows, columns: _near(i, j, w, rows // 2, columns // 2)): (
            "Distances are taken for total widths: `rows` and `columns` are radii, for EACH side; "
            "you use half of them."
        ),
        (lambda i, j, w, rows, columns: _near(i, j, w, columns, rows)): (
            "`rows` and `columns` are exchanged: i // width is the row (the line), i % width the "
            "column."
        ),
        (lambda i, j, w, rows, columns: _near(i, j, _height(i, w), rows, columns)): (
            "The lines are cut in the wrong place: a line has `width` pixels, so i // width is its "
            "number. You divide by the height."
        ),
        (lambda i, j, w, rows, columns: (i - j).abs() <= columns): (
            "That is a strip: a window of consecutive positions, |i − j| ≤ columns. The pixel "
            "above is `width` positions back."
        ),
        (lambda i, j, w, rows, columns: (i - j).abs() <= rows * w + columns): (
            "That is a longer strip: |i − j| ≤ rows·width + columns also contains everything in "
            "between, which is whole lines."
        ),
        (
            lambda i, j, w, rows, columns: (
                (_apart(i, j, w)[0].abs() <= rows) | (_apart(i, j, w)[1].abs() <= columns)
            )
        ): (
            "That is a cross of bands: near in the row OR near in the column. A neighbour is near "
            "in both: `&`."
        ),
        (lambda i, j, w, rows, columns: _apart(i, j, w)[0].abs() <= rows): (
            "Only the rows are compared: nothing keeps the columns near."
        ),
        (lambda i, j, w, rows, columns: _apart(i, j, w)[1].abs() <= columns): (
            "Only the columns are compared: nothing keeps the rows near."
        ),
        (
            lambda i, j, w, rows, columns: (
                (_apart(i, j, w)[0] <= rows) & (_apart(i, j, w)[1] <= columns)
            )
        ): (
            "The absolute value of the distances is missing: a negative distance is ≤ any radius, "
            "so pixels far away on one side are seen, too."
        ),
        (
            lambda i, j, w, rows, columns: (
                (_apart(i, j, w)[0].abs() < rows) & (_apart(i, j, w)[1].abs() < columns)
            )
        ): ("One pixel is missing on each side: the border itself is included, ≤, not <."),
        (
            lambda i, j, w, rows, columns: (
                sum(x.abs() for x in _apart(i, j, w)) <= max(rows, columns)
            )
        ): (
            "That is a diamond: the two distances are added. In a rectangle each has its own limit."
        ),
        (lambda i, j, w, rows, columns: (j <= i) & _near(i, j, w, rows, columns)): (
            "It sees the past only: `j <= i` is not wanted here. Pixels below and to the right are "
            "neighbours too."
        ),
        (lambda i, j, w, rows, columns: (i != j) & _near(i, j, w, rows, columns)): (
            "No pixel sees itself: at distance 0 it is in its own neighbourhood."
        ),
    },
    praise="Row and column first, then distances: no neighbour is wrong at the end of a line.",
)


def _grid(height: int, width: int, **more: int) -> Arguments:
    places = torch.arange(height * width)
    return {"i": places[:, None], "j": places[None], "width": width, **more}


# ---- an axis


def _along(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    down, right = _apart(i, j, width)
    return (right if axis == 0 else down) == 0


check_axis = Exercise(
    """Is it one axis? `shares(i, j, width, axis) -> (n, m)`, True = in one line, or one column.

    `i` (n, 1) and `j` (1, m) are integer positions of pixels in raster order, in lines of `width`;
    `axis` is as in numpy: 1 along a line, 0 along a column. Called for 5 lines of 7 and 4 of 3.
    """,
    right=_along,
    cases=lambda: [_grid(*shape, axis=axis) for shape in sizes((5, 7), (4, 3)) for axis in (1, 0)],
    axes="n m",
    mistakes={
        (lambda i, j, w, axis: _along(i, j, w, 1 - axis)): (
            "The axes are exchanged. As in numpy: axis 1 runs along a line, so i and j share the "
            "LINE, i // width; axis 0 runs along a column."
        ),
        (lambda i, j, w, axis: _along(i, j, w, 1)): (
            "`axis` is not used: the result is always the line."
        ),
        (lambda i, j, w, axis: _along(i, j, w, 0)): (
            "`axis` is not used: the result is always the column."
        ),
        (lambda i, j, w, axis: _along(i, j, w, 0) | _along(i, j, w, 1)): (
            "Both axes at once: that is a cross. Use the given axis only; another layer has the "
            "other one."
        ),
        (lambda i, j, w, axis: _along(i, j, w, 0) & _along(i, j, w, 1)): (
            "Same line AND same column is the pixel itself. Only one of the two is wanted."
        ),
        (lambda i, j, w, axis: (i - j).abs() < w if axis == 1 else (i - j) % w == 0): (
            "That is a window, not a line: |i − j| < width moves with i and reaches into the lines "
            "above and below. Lines begin at multiples of `width`."
        ),
        (lambda i, j, w, axis: _along(i, j, _height(i, w), axis)): (
            "The lines are cut in the wrong place: a line has `width` pixels, and you divide by "
            "the height."
        ),
        (lambda i, j, w, axis: (j <= i) & _along(i, j, w, axis)): (
            "It sees the past only: `j <= i` is not wanted here."
        ),
        (lambda i, j, w, axis: (i != j) & _along(i, j, w, axis)): (
            "No pixel sees itself: it is in its own line and in its own column."
        ),
    },
    praise="A line is a block of `width`, a column a stride of `width`: two patterns that you "
    "know.",
)


# ---- pairs of two axial layers

check_axial_pairs = NumberExercise(
    "How many pairs have two axial layers, not causal, on 48 lines of 64 pixels, in one head?",
    right=48 * 64 * (64 + 48),
    unit="pairs",
    mistakes={
        (48 * 64) ** 2: "That is full attention, n².",
        48 * 64 * (64 + 48 - 1): (
            "Each pixel is counted once only: it attends to itself in both layers."
        ),
        48 * 64 * 64: "That is the layer along rows alone, n·W.",
        48 * 64 * 48: "That is the layer along columns alone, n·H.",
        64**2 + 48**2: "That is W² + H², one row and one column. There are 48 rows and 64 columns.",
        64 + 48: (
            "That is the number of keys of one pixel in both layers, H + W. There are n pixels."
        ),
        48 * 64 * (64 + 48) / 2: "That is half of it: nothing is masked here.",
    },
)


# ---- the generator


def _attended(x: Tensor, *, causal: bool, scale: float | None = None) -> Tensor:
    """Attention of x (…, m, d) to itself: queries, keys and values are all x."""
    scores = x @ x.mT * (x.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ x


def _generator(
    x: Tensor,
    height: int,
    width: int,
    *,
    masked: tuple[bool, bool, bool] = (True, False, True),
    moved: str = "row",
    columns_of: str = "rows",
    swapped: bool = False,
    scale: float | None = None,
    parts: tuple[bool, bool] = (True, True),
) -> Tensor:
    """``masked``: the inner row, the complete row, the column."""
    grid = x.reshape(width, height, -1) if swapped else x.reshape(height, width, -1)
    inner, complete, column = masked
    rows = _attended(grid, causal=complete, scale=scale) if columns_of == "rows" else grid
    above = _attended(rows.transpose(0, 1), causal=column, scale=scale).transpose(0, 1)
    if moved == "row":
        above = F.pad(above[:-1], (0, 0, 0, 0, 1, 0))
    elif moved == "round":
        above = above.roll(1, 0)
    elif moved == "pixel":
        above = F.pad(above.flatten(0, 1)[:-1], (0, 0, 1, 0)).view(grid.shape)
    elif moved == "column":
        above = F.pad(above[:, :-1], (0, 0, 1, 0))
    line = _attended(grid, causal=inner, scale=scale)
    return (parts[0] * line + parts[1] * above).reshape(x.shape)


def _generator_cases() -> Iterator[Arguments]:
    for height, width, d in ((5, 3, 2), (3, 7, 2)):
        (x,) = random_tensors((height * width, d), seed=width)
        yield {"x": x, "height": height, "width": width}


check_generator = Exercise(
    """Is it axial attention's generator? `generator(x, height, width) -> (n, d)`.

    `x` (n, d) are the pixels in raster order, n = height · width; queries, keys and values are the
    input of each attention, and the result is row_masked(x) + down(column_masked(row(x))). Called
    for 5 rows of 3 pixels and for 3 rows of 7.
    """,
    right=_generator,
    cases=_generator_cases,
    axes="n d",
    mistakes={
        but(moved="none"): "The columns of rows are not moved down: each row gets what was "
        "computed from all of itself, so a pixel depends on later pixels of its own row.",
        but(moved="pixel"): "The result moves by one pixel, not by one row: all but the first "
        "pixel of a row still depend on later pixels of their row. Move whole rows, grid[:-1].",
        but(moved="column"): (
            "The result moves one column to the right; it should move one row down."
        ),
        but(moved="round"): "`roll` brings the last row to the top, so the first row depends on "
        "the whole image. The first row gets zeros.",
        but(masked=(False, False, True)): (
            "The own row is not masked: a pixel attends to the "
            "pixels on its right, which are later."
        ),
        but(masked=(True, True, True)): "The complete rows are masked, so pixels above and to the "
        "right are out of reach. Only the own row needs a mask along the row.",
        but(masked=(True, False, False)): (
            "The columns are not masked: a pixel attends to rows below."
        ),
        but(columns_of="x"): (
            "The columns attend to x itself; they should attend to the result of the complete rows."
        ),
        but(swapped=True): (
            "`height` and `width` are exchanged: the image has `height` rows of `width` pixels."
        ),
        but(scale=1.0): "The scores are not divided by √d.",
        but(parts=(True, False)): (
            "That is the masked own row alone: the complete rows above are missing."
        ),
        but(parts=(False, True)): (
            "That is the part from above alone: add the masked attention within the own row."
        ),
    },
    praise="Every earlier pixel is in reach, and no later one: complete rows, moved down by one.",
)
