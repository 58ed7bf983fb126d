"""Lesson 23's checks: positive random features, and the linear order of products."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_linear_order, check_positive_features
from attnlab.mechanisms.kernelized import performer


def half(x: Tensor) -> Tensor:
    return (x * x).sum(-1, keepdim=True) / 2


def features(x: Tensor, omega: Tensor) -> Tensor:
    return torch.exp(x @ omega.T - half(x)) / omega.shape[0] ** 0.5


def features_by_loops(x: Tensor, omega: Tensor) -> Tensor:
    rows = [torch.exp(x @ w - half(x)[:, 0]) for w in omega]
    return torch.stack(rows, dim=-1) * len(omega) ** -0.5


def summed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ (k.T @ v) / (q @ k.sum(0))[:, None]


def summed_by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state, total = q.new_zeros(q.shape[1], v.shape[1]), q.new_zeros(q.shape[1])
    for key, value in zip(k, v, strict=True):
        state, total = state + key[:, None] * value, total + key
    return (q @ state) / (q @ total).unsqueeze(-1)


def quadratic(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = q @ k.T
    return weights / weights.sum(-1, keepdim=True) @ v


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_positive_features, features),
    (check_positive_features, features_by_loops),
    (check_positive_features, lambda x, w: performer.features(x, w)),
    (check_linear_order, summed),
    (check_linear_order, summed_by_loops),
]

FEATURES_WRONG: dict[str, tuple[str, Any]] = {
    "one-sided": ("|x|²/2 is missing", lambda x, w: (x @ w.T).exp() / len(w) ** 0.5),
    "sign": ("wrong sign", lambda x, w: (x @ w.T + half(x)).exp() / len(w) ** 0.5),
    "whole": ("|x|², not |x|²/2", lambda x, w: (x @ w.T - 2 * half(x)).exp() / len(w) ** 0.5),
    "norm": (
        "not squared",
        lambda x, w: (x @ w.T - x.norm(dim=-1, keepdim=True) / 2).exp() / len(w) ** 0.5,
    ),
    "sum": ("1/√r is missing", lambda x, w: (x @ w.T - half(x)).exp()),
    "r": ("r² is too much", lambda x, w: (x @ w.T - half(x)).exp() / len(w)),
    "d": ("it is √r", lambda x, w: (x @ w.T - half(x)).exp() / w.shape[1] ** 0.5),
    "scaled": ("scaled once more", lambda x, w: features(x * 5**-0.25, w)),
    "mean": (
        "the mean of the squares",
        lambda x, w: (x @ w.T - (x * x).mean(-1, keepdim=True) / 2).exp() / len(w) ** 0.5,
    ),
    "logarithm": ("exponential is missing", lambda x, w: x @ w.T - half(x)),
    "cosine": ("trigonometric", lambda x, w: (x @ w.T).cos() / len(w) ** 0.5),
    "softmax": ("softmax over the draws", lambda x, w: (x @ w.T).softmax(-1)),
    "transposed": ("axes are transposed", lambda x, w: features(x, w).T),
    "waves": ("Wrong shape", lambda x, w: performer.trigonometric_features(x, w)),
    "untransposed": ("is one of them not transposed", lambda x, w: x @ w),
    "None": ("`return`", lambda x, w: None),
    "in place": ("`x` changed in place", lambda x, w: features(x.clone(), w) + 0 * x.zero_().sum()),
}

ORDER_WRONG: dict[str, tuple[str, Any]] = {
    "map": ("a tensor of n × m = (97, 101)", quadratic),
    "no denominator": ("denominator is missing", lambda q, k, v: q @ (k.T @ v)),
    "count": ("number of keys", lambda q, k, v: q @ (k.T @ v) / len(k)),
    "one number": (
        "its own sum",
        lambda q, k, v: q @ (k.T @ v) / (q @ k.sum(0)).sum(),
    ),
    "keys alone": ("keys' features alone", lambda q, k, v: q @ (k.T @ v) / k.sum()),
    "softmax": ("It uses a softmax", lambda q, k, v: (q @ k.T).softmax(-1) @ v),
    "broadcast": ("raised RuntimeError", lambda q, k, v: q @ (k.T @ v) / (q @ k.sum(0))),
    "outer": (
        "(101, 5, 3) is made",
        lambda q, k, v: q @ (k[:, :, None] * v[:, None]).sum(0) / (q @ k.sum(0))[:, None],
    ),
    "tuple": ("gave a tuple", lambda q, k, v: (q @ (k.T @ v), q @ k.sum(0))),
}

TABLES = [(check_positive_features, FEATURES_WRONG), (check_linear_order, ORDER_WRONG)]
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "solution"), RIGHT)
def test_written_differently_is_right(check: Callable, solution: Callable) -> None:
    verdict = check(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "words", "solution"), WRONG, ids=[w[1] for w in WRONG])
def test_mistakes_by_name(
    check: Callable, words: str, solution: Any, refuses: Callable[..., None]
) -> None:
    refuses(check(solution), words)


@pytest.mark.parametrize(("check", "table"), TABLES)
def test_messages_differ(check: Callable, table: dict, tells_apart: Callable) -> None:
    tells_apart(check, table)
