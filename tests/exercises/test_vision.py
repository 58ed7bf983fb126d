"""Lesson 62's checks: the share in a row of patches, and mean attention by offset."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_mean_by_offset, check_row_share
from attnlab.lens.patches import patch_statistics
from tests.exercises.frame import answers_to


def row_share(weights: Tensor, columns: int) -> Tensor:
    i = torch.arange(len(weights))
    row = i // columns
    return (weights * ((row[:, None] == row) & (i[:, None] != i))).sum(1)


def row_share_by_blocks(weights: Tensor, columns: int) -> Tensor:
    rows = len(weights) // columns
    blocks = weights.view(rows, columns, rows, columns).diagonal(dim1=0, dim2=2)
    return (blocks.sum(1).T - weights.diagonal().view(rows, columns)).flatten()


def by_loops(weights: Tensor, rows: int, columns: int) -> Tensor:
    sums = torch.zeros(2 * rows - 1, 2 * columns - 1, dtype=weights.dtype)
    counts = torch.zeros_like(sums)
    for i in range(rows * columns):
        for j in range(rows * columns):
            down, right = j // columns - i // columns, j % columns - i % columns
            sums[rows - 1 + down, columns - 1 + right] += weights[i, j]
            counts[rows - 1 + down, columns - 1 + right] += 1
    return sums / counts


def by_the_library(weights: Tensor, rows: int, columns: int) -> Tensor:
    found = patch_statistics(weights[None, None], (rows, columns)).by_offset[0]
    return torch.tensor(found).to(weights)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_row_share, row_share),
    (check_row_share, row_share_by_blocks),
    (check_mean_by_offset, by_loops),
    (check_mean_by_offset, by_the_library),
]


def places(w: Tensor, c: int) -> tuple[Tensor, Tensor]:
    i = torch.arange(len(w))
    return i[:, None], i[None]


def of(pairs: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    return lambda w, c: (w * pairs(*places(w, c), c)).sum(1)


ROW_WRONG: dict[str, tuple[str, Any]] = {
    "itself": ("own patch is counted", of(lambda i, j, c: i // c == j // c)),
    "column": ("That is the column", of(lambda i, j, c: (i % c == j % c) & (i != j))),
    "height": ("number of rows", lambda w, c: row_share(w, len(w) // c)),
    "received": ("receives from its row", lambda w, c: row_share(w.T, c)),
    "mean": ("mean over the patches of the row", lambda w, c: row_share(w, c) / (c - 1)),
    "mean of all": ("mean over all patches", lambda w, c: row_share(w, c) / len(w)),
    "window": ("window in reading", of(lambda i, j, c: ((i - j).abs() < c) & (i != j))),
    "left": ("to the left", of(lambda i, j, c: (i // c == j // c) & (j < i))),
    "right": ("to the right", of(lambda i, j, c: (i // c == j // c) & (j > i))),
    "inverted": ("inverted", of(lambda i, j, c: i // c != j // c)),
    "one number": ("Wrong shape", lambda w, c: row_share(w, c).mean()),
    "None": ("`return`", lambda w, c: None),
    "other": ("numbers are not", lambda w, c: row_share(w, c) + 1),
    "in place": ("changed in place", lambda w, c: row_share(w.clone(), c) + 0 * w.zero_().sum()),
}

OFFSET_WRONG: dict[str, tuple[str, Any]] = {
    "sums": ("Those are sums", lambda w, r, c: by_loops(w, r, c) * n(r, c)),
    "from key": ("from key to query", lambda w, r, c: by_loops(w.T, r, c)),
    "upside down": ("upside down", lambda w, r, c: by_loops(w, r, c).flip(0)),
    "mirrored": ("mirrored", lambda w, r, c: by_loops(w, r, c).flip(1)),
    "by n": ("divided by n", lambda w, r, c: by_loops(w, r, c) * n(r, c) / (r * c)),
    "axes": ("axes are transposed", lambda w, r, c: by_loops(w, r, c).T),
    "None": ("`return`", lambda w, r, c: None),
    "other": ("numbers are not", lambda w, r, c: by_loops(w, r, c) + 1),
}


def n(rows: int, columns: int) -> Tensor:
    """How many pairs have each offset."""
    down = rows - torch.arange(1 - rows, rows).abs()
    return (down[:, None] * (columns - torch.arange(1 - columns, columns).abs())).double()


TABLES = [(check_row_share, ROW_WRONG), (check_mean_by_offset, OFFSET_WRONG)]


TestAnswers = answers_to(RIGHT, TABLES)
