"""Lesson 23's checks: the variance of random features, the linear order, a causal layer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_causal_performer, check_linear_order, check_variance
from tests.exercises.frame import answers_to


def variance(x: Tensor, y: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """By the steps of the derivation."""
    mean = (x @ y).exp()
    second = ((2 * (x + y)).norm() ** 2 / 2).exp() * (-(x @ x) - y @ y).exp()
    return second, (second - mean**2) / r / mean**2


def in_numbers(x: Tensor, y: Tensor, r: int) -> tuple[float, float]:
    return tuple(float(part) for part in variance(x, y, r))


def exponents(x: Tensor, omega: Tensor) -> Tensor:
    return x @ omega.T - (x * x).sum(-1, keepdim=True) / 2


def by_loop(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    a, b = exponents(q / 7**0.25, omega), exponents(k / 7**0.25, omega)
    a, b = (a - a.amax(-1, keepdim=True)).exp(), (b - b.max()).exp()
    state, total, rows = 0, 0, []
    for i in range(len(q)):
        state, total = state + torch.outer(b[i], v[i]), total + b[i]
        rows.append(a[i] @ state / (a[i] @ total))
    return torch.stack(rows)


def by_cumsum(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    a, b = exponents(q / 7**0.25, omega), exponents(k / 7**0.25, omega)
    a, b = (a - a.amax(-1, keepdim=True)).exp(), (b - b.max()).exp()
    state = torch.einsum("nr,ne->nre", b, v).cumsum(0)
    return torch.einsum("nr,nre->ne", a, state) / (a * b.cumsum(0)).sum(-1, keepdim=True)


def performer(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    """With an n × n map, and without a maximum."""
    a, b = exponents(q * 7**-0.25, omega).exp(), exponents(k * 7**-0.25, omega).exp()
    weights = (a @ b.T).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def without_maximum(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    a, b = exponents(q / 7**0.25, omega).exp(), exponents(k / 7**0.25, omega).exp()
    state = torch.einsum("nr,ne->nre", b, v).cumsum(0)
    return torch.einsum("nr,nre->ne", a, state) / (a * b.cumsum(0)).sum(-1, keepdim=True)


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
    (check_variance, variance),
    (check_variance, in_numbers),
    (check_causal_performer, by_loop),
    (check_causal_performer, by_cumsum),
    (check_linear_order, summed),
    (check_linear_order, summed_by_loops),
]


ONE = {"one": ("it should give (second_moment, relative)", lambda *given: variance(*given)[0])}

PERFORMER_WRONG: dict[str, tuple[str, Any]] = {
    "map": ("as large as an n × n map", performer),
    "overflow": ("a maximum from the exponents", without_maximum),
}

ORDER_WRONG: dict[str, tuple[str, Any]] = {
    "map": ("a tensor of n × m = (97, 101)", quadratic),
    "outer": (
        "(101, 5, 3) is made",
        lambda q, k, v: q @ (k[:, :, None] * v[:, None]).sum(0) / (q @ k.sum(0))[:, None],
    ),
}

TABLES = [
    (check_variance, ONE),
    (check_linear_order, ORDER_WRONG),
    (check_causal_performer, PERFORMER_WRONG),
]


TestAnswers = answers_to(RIGHT, TABLES)
