"""Lesson 43's checks: the ids of bytes, and calibrated weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_byte_ids, check_calibrate
from attnlab.mechanisms.positions.byte_embedding import encode


def by_loops(weights: Tensor) -> Tensor:
    rows = []
    for row in weights:
        powers = torch.tensor([float(torch.exp(row @ other)) for other in weights])
        rows.append((powers / powers.sum()).to(weights.dtype) @ weights)
    return torch.stack(rows)


def attended(weights: Tensor) -> Tensor:
    rows = weights[None, None]
    return F.scaled_dot_product_attention(rows, rows, rows, scale=1.0)[0, 0]


def alike(weights: Tensor) -> Tensor:
    return weights @ weights.mT


def ids(text: str, first: int = 3, end: tuple[int, ...] = (1,)) -> Tensor:
    return torch.tensor([*(byte + first for byte in text.encode()), *end])


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_byte_ids, lambda text: torch.tensor(encode(text))),
    (check_byte_ids, lambda text: F.pad(ids(text, end=()), (0, 1), value=1)),
    (check_calibrate, by_loops),
    (check_calibrate, attended),
]

IDS_WRONG: dict[str, tuple[str, Any]] = {
    "endless": ("The end is missing", lambda text: ids(text, end=())),
    "letters": ("not bytes", lambda text: torch.tensor([*(ord(c) + 3 for c in text), 1])),
    "unmoved": ("not moved by 3", lambda text: ids(text, 0)),
    "end moved": ("moved by 3 as well", lambda text: ids(text, end=(4,))),
    "by two": ("moved by 2", lambda text: ids(text, 2)),
    "padded": ("ends with padding", lambda text: ids(text, end=(0,))),
    "a list": ("gave a list", encode),
    "None": ("`return`", lambda text: None),
}

CALIBRATE_WRONG: dict[str, tuple[str, Any]] = {
    "plain": ("The softmax is missing", lambda p: alike(p) @ p),
    "columns": ("down the columns", lambda p: alike(p).softmax(0) @ p),
    "map": ("the n × n map", lambda p: alike(p).softmax(1)),
    "sizes": ("It compares sizes", lambda p: p @ alike(p.mT).softmax(1)),
    "scaled": ("no scale", lambda p: (alike(p) / p.shape[1] ** 0.5).softmax(1) @ p),
    "twice": ("A second softmax", lambda p: attended(p).softmax(1)),
    "added": ("are added", lambda p: p + attended(p)),
    "transposed": ("transposed", lambda p: attended(p).mT),
    "itself": ("the numbers are not", lambda p: p.clone()),
    "None": ("gave None", lambda p: None),
}

TABLES = [(check_byte_ids, IDS_WRONG), (check_calibrate, CALIBRATE_WRONG)]
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
