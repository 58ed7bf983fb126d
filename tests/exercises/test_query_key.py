"""Lesson 60's checks: the moved keys, and the strongest keys among the nearest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_moved_keys, check_top_share


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


@pytest.mark.parametrize(("check", "function"), RIGHT)
def test_right(check: Callable[..., Any], function: Callable[..., Tensor]) -> None:
    verdict = check(function)
    assert verdict.right, verdict.message


WRONG: list[tuple[Callable[..., Any], Callable[..., object], str]] = [
    (check_moved_keys, lambda q, k, c: k / c, "only divided"),
    (check_moved_keys, lambda q, k, c: (k + q.mean(0) - k.mean(0)) / c, "Scale first"),
    (check_moved_keys, lambda q, k, c: k / c + q.mean(0) - k.mean(0), "after the scaling"),
    (check_moved_keys, lambda q, k, c: (k - k.mean(0)) / c + q.mean(0), "queries become c q"),
    (check_moved_keys, lambda q, k, c: (k - k.mean(0)) * c + c * q.mean(0), "grows by c²"),
    (check_moved_keys, lambda q, k, c: (k + k.mean(0)) / c - c * q.mean(0), "exchange"),
    (check_moved_keys, lambda q, k, c: (k - k.mean()) / c + c * q.mean(), "mean over the rows"),
    (check_moved_keys, lambda q, k, c: q, "shape"),
    (check_moved_keys, lambda q, k, c: ..., "ellipsis"),
    (check_top_share, lambda s, a, k: by_sets(s, -a, k), "farthest"),
    (check_top_share, lambda s, a, k: by_sets(s, a, k) * k, "Divide by k for a share"),
    (check_top_share, lambda s, a, k: by_sets(s, a, k) * k / 11, "all keys of the row"),
    (
        check_top_share,
        lambda s, a, k: by_sets(s, a, k) / (2 - by_sets(s, a, k)),
        "union of both sets",
    ),
    (check_top_share, lambda s, a, k: by_sets(s.T, a.T, k), "strongest queries of each key"),
    (
        check_top_share,
        lambda s, a, k: (
            (s.argsort(1, descending=True)[:, :k] == a.argsort(1)[:, :k]).to(s.dtype).mean(1)
        ),
        "places in the two lists",
    ),
    (check_top_share, lambda s, a, k: by_sets(s, a, k).mean(), "one for each query"),
    (check_top_share, lambda s, a, k: s, "shape"),
]


@pytest.mark.parametrize(("check", "function", "words"), WRONG)
def test_wrong(check: Callable[..., Any], function: Callable[..., object], words: str) -> None:
    verdict = check(function)
    assert not verdict.right
    assert words in verdict.message
