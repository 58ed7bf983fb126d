"""Checks of lesson 62: the share of attention in a row of patches, and mean attention by offset."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, sizes
from attnlab.exercises.exercise import Exercise


def _weights(n: int) -> Tensor:
    drawn = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return (2 * drawn).softmax(-1)


# ---- the share in the row


def _same_row(n: int, columns: int) -> Tensor:
    row = torch.arange(n) // columns
    return row[:, None] == row


def _others(n: int) -> Tensor:
    return ~torch.eye(n, dtype=torch.bool)


def _height(weights: Tensor, columns: int) -> int:
    return len(weights) // columns


def _row_share(weights: Tensor, columns: int) -> Tensor:
    n = len(weights)
    return (weights * (_same_row(n, columns) & _others(n))).sum(1)


def _share(
    pairs: Callable[[int, int], Tensor], *, axis: int = 1
) -> Callable[[Tensor, int], Tensor]:
    """The sum over the keys (axis 1) of the pairs (n, n) that a mistake takes."""
    return lambda weights, columns: (weights * pairs(len(weights), columns)).sum(axis)


def _column(n: int) -> Tensor:
    return torch.arange(n)


def _row_share_cases() -> Iterator[Arguments]:
    for rows, columns in sizes((3, 5), (4, 2)):
        yield {"weights": _weights(rows * columns), "columns": columns}


check_row_share = Exercise(
    """Is it the share of attention in the query's row? `row_share(weights, columns) -> (n,)`.

    `weights` (n, n) are of patches in reading order, `columns` to a row. Of each query the sum of
    its weights on the other patches of its row. Called for 3 rows of 5 patches and for 4 rows of 2.
    """,
    right=_row_share,
    cases=_row_share_cases,
    axes="n",
    mistakes={
        _share(_same_row): (
            "The query's own patch is counted. A head that attends to itself only would then be a "
            "row head; leave the diagonal out."
        ),
        _share(lambda n, c: (_column(n)[:, None] % c == _column(n) % c) & _others(n)): (
            "That is the column: patches i and j share a column where i % columns == j % columns. "
            "For the row, divide: i // columns."
        ),
        (lambda w, c: _row_share(w, _height(w, c))): (
            "The rows are cut in the wrong place: a row has `columns` patches, so i // columns is "
            "its number. You divide by the number of rows."
        ),
        _share(lambda n, c: _same_row(n, c) & _others(n), axis=0): (
            "That is what each patch receives from its row: queries are rows of `weights`, keys "
            "are columns. Sum over the last axis."
        ),
        (lambda w, c: _row_share(w, c) / (c - 1)): (
            "That is a mean over the patches of the row. A share is the sum of the weights."
        ),
        (lambda w, c: _row_share(w, c) / len(w)): (
            "That is a mean over all patches. A share is the sum of the weights."
        ),
        _share(lambda n, c: ((_column(n)[:, None] - _column(n)).abs() < c) & _others(n)): (
            "That is a window in reading order, |i − j| < columns: it reaches into the rows above "
            "and below."
        ),
        _share(lambda n, c: _same_row(n, c) & (_column(n) < _column(n)[:, None])): (
            "Only the patches to the left are counted."
        ),
        _share(lambda n, c: _same_row(n, c) & (_column(n) > _column(n)[:, None])): (
            "Only the patches to the right are counted."
        ),
        _share(lambda n, c: ~_same_row(n, c)): (
            "It is inverted: that is what goes to the other rows."
        ),
    },
    praise="With uniform attention each would be (columns − 1) / n: compare with that.",
)


# ---- mean attention by offset


def _by_offset(weights: Tensor, rows: int, columns: int, *, mean: bool = True) -> Tensor:
    at = torch.arange(rows * columns)
    down = at // columns - at[:, None] // columns
    right = at % columns - at[:, None] % columns
    index = ((down + rows - 1) * (2 * columns - 1) + right + columns - 1).flatten()
    sums = torch.zeros((2 * rows - 1) * (2 * columns - 1), dtype=weights.dtype)
    sums.index_add_(0, index, weights.flatten())
    counts = torch.zeros_like(sums).index_add_(0, index, torch.ones_like(weights).flatten())
    return (sums / counts if mean else sums).view(2 * rows - 1, 2 * columns - 1)


def _mean_by_offset_cases() -> Iterator[Arguments]:
    for rows, columns in sizes((3, 4), (5, 2)):
        yield {"weights": _weights(rows * columns), "rows": rows, "columns": columns}


check_mean_by_offset = Exercise(
    """Is it mean attention by offset? `mean_by_offset(weights, rows, columns)`.

    `weights` (n, n) are of rows · columns patches in reading order. Gives (2·rows − 1,
    2·columns − 1): at [rows − 1 + down, columns − 1 + right] the mean weight of all pairs whose key
    is `down` rows below and `right` columns right of the query. Called for 3 × 4 and 5 × 2 patches.
    """,
    right=_by_offset,
    cases=_mean_by_offset_cases,
    axes="down right",
    mistakes={
        (lambda w, r, c: _by_offset(w, r, c, mean=False)): (
            "Those are sums. Far offsets have few pairs and look small: divide by the number of "
            "pairs that have the offset."
        ),
        (lambda w, r, c: _by_offset(w, r, c).flip(0, 1)): (
            "The offset is taken from key to query, or queries and keys are exchanged. It is the "
            "key's place minus the query's: a key below the query belongs below the middle."
        ),
        (lambda w, r, c: _by_offset(w, r, c).flip(0)): (
            "The rows are upside down: a key below the query belongs below the middle."
        ),
        (lambda w, r, c: _by_offset(w, r, c).flip(1)): (
            "The columns are mirrored: a key to the right of the query belongs to the right."
        ),
        (lambda w, r, c: _by_offset(w, r, c, mean=False) / (r * c)): (
            "All sums are divided by n, the number of queries. Only few queries have a key at a "
            "far offset: divide by the number of pairs that have the offset."
        ),
    },
    praise="A head that only looks at offsets is this small map, and nothing else.",
)


# ---- chance

check_uniform_row = NumberExercise(
    "Is it the share that the others of a row get, 224 × 224 pixels in patches of 16 × 16?",
    right=(14 - 1) / 14**2,
    tolerance=2e-3,
    unit="(a share)",
    mistakes={
        14 / 14**2: "That counts the query's own patch: it is not one of the others.",
        13 / (14**2 - 1): (
            "Uniform attention goes to all patches, the query's own included: divide by n."
        ),
        15 / 16**2: (
            "That is a grid of 16 × 16 patches. 16 is the side of a patch, and the image has 224 / "
            "16 to a row."
        ),
        7 / 64: "That is the grid of the digits, 8 × 8.",
        223 / 224**2: "Those are pixels. A patch has 16 × 16 of them.",
        13: "That is how many patches there are. What share of the attention do they get?",
    },
)
