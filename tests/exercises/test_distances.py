"""Lesson 42's checks: the relative shift, and rows of clipped distances."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_clipped_rows, check_shift
from attnlab.mechanisms.positions.relative import relative_shift
from attnlab.mechanisms.positions.shaw import clipped_distances


def by_loops(scores: Tensor) -> Tensor:
    n = len(scores)
    return torch.stack([torch.stack([row[n - 1 - i + j] for j in range(n)]) for i, row in
                        enumerate(scores)])  # fmt: skip


def viewed(scores: Tensor, sides: tuple[int, int], rows: slice) -> Tensor:
    n, columns = scores.shape
    return F.pad(scores, sides).reshape(columns + 1, n)[rows].reshape(n, columns)[:, :n]


def rows_of(n: int, k: int) -> Tensor:
    return torch.tensor([[min(max(j - i, -k), k) + k for j in range(n)] for i in range(n)])


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_shift, by_loops),
    (check_shift, lambda s: relative_shift(s[None, None])[0, 0, :, : len(s)]),
    (check_shift, lambda s: viewed(s, (1, 0), slice(1, None))),
    (check_clipped_rows, rows_of),
    (check_clipped_rows, lambda n, k: clipped_distances(n, n, 2 * k + 1, None, "cpu")[0]),
]

SHIFT_WRONG: dict[str, tuple[str, Any]] = {
    "first columns": ("Nothing is shifted", lambda s: s[:, : len(s)]),
    "last columns": ("These are the last n columns", lambda s: s[:, -len(s) :]),
    "sign": ("the wrong sign", lambda s: by_loops(s.flip(1))),
    "by i": ("move by i", lambda s: by_loops(s.flip(0)).flip(0)),
    "early": ("One column off", lambda s: by_loops(s.roll(1, 1))),
    "late": ("One column off", lambda s: by_loops(s.roll(-1, 1))),
    "right": ("zeros are on the right: pad", lambda s: viewed(s, (0, 1), slice(1, None))),
    "right and last": ("and the last row is dropped", lambda s: viewed(s, (0, 1), slice(-1))),
    "last row": ("The last row of the view", lambda s: viewed(s, (1, 0), slice(-1))),
    "transposed": ("transposed", lambda s: by_loops(s).mT),
    "half": ("result is float32", lambda s: by_loops(s).float()),
    "in place": ("still needs", lambda s: by_loops(s) + 0 * s.mul_(2)[:, :1]),
    "None": ("`return`", lambda s: None),
    "raises": ("raised", lambda s: s @ s),
}

ROWS_WRONG: dict[str, tuple[str, Any]] = {
    "sign": ("key minus query", lambda n, k: rows_of(n, k).mT),
    "from 0": ("The k is missing", lambda n, k: rows_of(n, k) - k),
    "unclipped": ("Nothing is clipped", lambda n, k: rows_of(n, 9) - 9 + k),
    "clipped late": ("It clips after adding k", lambda n, k: (rows_of(n, 9) - 9 + k).clamp(0, k)),
    "absolute": ("Both sides share rows", lambda n, k: (rows_of(n, k) - k).abs()),
    "around": ("wrap around", lambda n, k: (rows_of(n, 9) - 9 + k) % (2 * k + 1)),
    "None": ("`return`", lambda n, k: None),
    "row": ("Wrong shape", lambda n, k: rows_of(n, k)[0]),
}

TABLES = [(check_shift, SHIFT_WRONG), (check_clipped_rows, ROWS_WRONG)]
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_are_right(check: Callable[..., Verdict], answer: Any) -> None:
    verdict = check(answer)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "sentence", "answer"), WRONG)
def test_mistakes_are_named(check: Callable[..., Verdict], sentence: str, answer: Any) -> None:
    verdict = check(answer)
    assert not verdict.right
    assert sentence in verdict.message, verdict.message
