"""Lesson 60's checks: the moved keys, and the strongest keys among the nearest."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises import check_moved_keys, check_top_share
from tests.exercises.frame import answers_to


def moved(q: Tensor, k: Tensor, c: float) -> Tensor:
    centre = sum(k[j] / c for j in range(len(k))) / len(k)
    return torch.stack([key / c + c * q.mean(dim=0) - centre for key in k])


def by_sets(scores: Tensor, apart: Tensor, k: int) -> Tensor:
    found = []
    for row, far in zip(scores.tolist(), apart.tolist(), strict=True):
        strong = sorted(range(len(row)), key=lambda j: -row[j])[:k]
        near = sorted(range(len(far)), key=lambda j: far[j])[:k]
        found.append(len(set(strong) & set(near)) / k)
    return torch.tensor(found, dtype=scores.dtype)


def ranks(values: Tensor) -> Tensor:
    return values.argsort(-1).argsort(-1)


RIGHT: list[tuple[Callable[..., Any], Callable[..., Tensor]]] = [
    (check_moved_keys, moved),
    (check_moved_keys, lambda q, k, c: (k - k.mean(0)) / c + c * q.mean(0)),
    (check_top_share, by_sets),
    (
        check_top_share,
        lambda scores, apart, k: (
            ((ranks(-scores) < k) & (ranks(apart) < k)).to(scores.dtype).sum(1) / k
        ),
    ),
]


TestAnswers = answers_to(RIGHT)
