"""Lesson 42's checks: the relative shift, and rows of clipped distances."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_clipped_rows, check_memory_layer, check_shift
from attnlab.mechanisms.positions.relative import relative_shift
from attnlab.mechanisms.positions.shaw import clipped_distances
from tests.exercises.frame import answers_to


def by_loops(scores: Tensor) -> Tensor:
    n = len(scores)
    return torch.stack([torch.stack([row[n - 1 - i + j] for j in range(n)]) for i, row in
                        enumerate(scores)])  # fmt: skip


def viewed(scores: Tensor, sides: tuple[int, int], rows: slice) -> Tensor:
    n, columns = scores.shape
    return F.pad(scores, sides).reshape(columns + 1, n)[rows].reshape(n, columns)[:, :n]


def rows_of(n: int, k: int) -> Tensor:
    return torch.tensor([[min(max(j - i, -k), k) + k for j in range(n)] for i in range(n)])


# ---- a layer with a memory


def pair_by_pair(q, k, v, u, t, r):
    (h, n, d), m = q.shape, k.shape[1]
    out = torch.zeros(h, n, v.shape[-1], dtype=q.dtype)
    for a in range(h):
        for i in range(n):
            at = m - n + i
            scores = [
                (q[a, i] + u[a]) @ k[a, j] + (q[a, i] + t[a]) @ r[a, m - 1 - (at - j)]
                for j in range(at + 1)
            ]
            out[a, i] = (torch.stack(scores) / d**0.5).softmax(0) @ v[a, : at + 1]
    return out  # fmt: skip


def by_index(q, k, v, u, t, r):
    (n, d), m = q.shape[1:], k.shape[1]
    at, j = torch.arange(m - n, m)[:, None], torch.arange(m)
    column = (m - 1 - at + j).clamp(0, m - 1).expand(len(q), n, m)
    content, position = (q + u[:, None]) @ k.mT, (q + t[:, None]) @ r.mT
    scores = (content + position.gather(-1, column)) / d**0.5
    return scores.masked_fill(j > at, -torch.inf).softmax(-1) @ v


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_shift, by_loops),
    (check_shift, lambda s: relative_shift(s[None, None])[0, 0, :, : len(s)]),
    (check_shift, lambda s: viewed(s, (1, 0), slice(1, None))),
    (check_clipped_rows, rows_of),
    (check_clipped_rows, lambda n, k: clipped_distances(n, n, 2 * k + 1, None, "cpu")[0]),
    (check_memory_layer, by_index),
]
LOOPS = {"loops": ("there is a loop", pair_by_pair)}

TestAnswers = answers_to(RIGHT, [(check_memory_layer, LOOPS)])
