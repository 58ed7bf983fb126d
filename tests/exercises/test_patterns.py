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


def by_powers(
    mask: Tensor, *, start: int = 0, residual: bool = True, rows: Any = slice(None)
) -> int:
    step = (mask | torch.eye(len(mask)).bool() if residual else mask).double()
    known, layers = torch.eye(len(mask)).double(), start
    while not (known[rows] > 0).all():
        known, layers = step @ known, layers + 1
    return layers


def squared(mask: Tensor) -> int:
    known, times = (mask | torch.eye(len(mask)).bool()).double(), 0
    while not (known > 0).all():
        known, times = known @ known, times + 1
    return times


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
    "no residual": ("residual connection is missing", lambda m: by_powers(m, residual=False)),
    "from 0": ("too few", lambda m: by_powers(m, start=-1)),
    "from 1": ("too many", lambda m: by_powers(m, start=1)),
    "squares": ("counts squarings", squared),
    "powers": ("skips layers", lambda m: 2 ** squared(m)),
    "first": ("the first output", lambda m: by_powers(m, rows=0)),
    "last": ("the last output", lambda m: by_powers(m, rows=-1)),
    "past": (
        "the past",
        lambda m: next(
            k
            for k in range(99)
            if (torch.linalg.matrix_power((m | torch.eye(len(m)).bool()).double(), k) > 0)
            .tril()
            .equal(torch.ones(m.shape).bool().tril())
        ),
    ),
    "one": ("the last pair", lambda m: 1),
    "any": ("`.any()`", lambda m: 0),
    "keys": ("the number of keys", lambda m: m.sum(1).max()),
    "truth": ("take `.float()`", lambda m: (m @ m).sum()),
    "size": ("12 layers, where 11", lambda m: len(m)),
    "mask": ("a Tensor", lambda m: m),
    "None": ("`return`", lambda m: None),
    "in place": ("still needed", lambda m: (by_sets(m), m.zero_())[0]),
    "raises": ("raised TypeError", lambda m: len(m) + "layers"),
}

TABLES = [(check_window_mask, WINDOW_WRONG), (check_layers_until_connected, LAYERS_WRONG)]


TestAnswers = answers_to(RIGHT, TABLES)
