"""Lesson 62's checks: the share in a row of patches, and mean attention by offset."""

from collections.abc import Callable

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


TestAnswers = answers_to(RIGHT)
