"""Lesson 11's checks: a window as a mask, and the layers until everything is connected."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.core.patterns import local
from attnlab.exercises import Verdict, check_layers_until_connected, check_window_mask
from tests.exercises.frame import answers_to


def by_loops(n: int, window: int) -> Tensor:
    return torch.tensor([[2 * abs(i - j) <= window for j in range(n)] for i in range(n)])


def bands(n: int, window: int) -> Tensor:
    return torch.ones(n, n).tril(window // 2).triu(-(window // 2)).bool()


def by_sets(mask: Tensor) -> int:
    knows, layers = [{i} for i in range(len(mask))], 0
    while any(len(known) < len(mask) for known in knows):
        knows = [
            knows[i].union(*(knows[j] for j in mask[i].nonzero()[:, 0].tolist()))
            for i in range(len(mask))
        ]
        layers += 1
    return layers


def by_powers(mask: Tensor) -> int:
    step = (mask | torch.eye(len(mask)).bool()).double()
    known, layers = torch.eye(len(mask)).double(), 0
    while not (known > 0).all():
        known, layers = step @ known, layers + 1
    return layers


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_window_mask, by_loops),
    (check_window_mask, bands),
    (check_window_mask, lambda n, window: local(window // 2).dense(n)),
    (check_layers_until_connected, by_sets),
    (check_layers_until_connected, by_powers),
    (check_layers_until_connected, lambda mask: torch.tensor(by_sets(mask))),
]

WINDOW_WRONG: dict[str, tuple[str, Any]] = {
    "numbers": ("of torch.float32", lambda n, w: by_loops(n, w).float()),
}

LAYERS_WRONG: dict[str, tuple[str, Any]] = {
    "size": ("12 layers, where 11", lambda m: len(m)),
    "mask": ("a Tensor", lambda m: m),
}

TABLES = [(check_window_mask, WINDOW_WRONG), (check_layers_until_connected, LAYERS_WRONG)]


TestAnswers = answers_to(RIGHT, TABLES)
