"""Lesson 43's checks: the ids of bytes, and calibrated weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_byte_ids, check_calibrate, check_offset_subwords
from attnlab.mechanisms.positions.byte_embedding import encode
from tests.exercises.frame import answers_to


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


TestAnswers = answers_to(RIGHT, TABLES)


# ---- subwords of every offset


def by_character(
    x, w, sizes, *, offsets=range, head="own", ring=False, full=False, axis=-1, even=False
):
    n, rows = len(x), []
    for i in range(n):
        row = []
        for size in sizes:
            for o in offsets(size):
                if ring:
                    block = [(j + o) % n for j in range(n) if j // size == ((i - o) % n) // size]
                elif i < o:
                    block = {"own": [i], "zero": [], "mean": list(range(o))}[head]
                else:
                    block = [j for j in range(o, n) if (j - o) // size == (i - o) // size]
                divided = size if full and not ring and i >= o else max(1, len(block))
                row.append(x[block].sum(0) / divided)
        rows.append(torch.stack(row))
    candidates = torch.stack(rows)
    weights = ((candidates @ w) * (not even)).softmax(axis)
    return (weights[..., None] * candidates).sum(1)


def with_change(**changes):
    return lambda *given: by_character(*given, **changes)


OFFSETS_WRONG = {
    "offset 0 alone": ("from the start of the text", with_change(offsets=lambda s: range(1))),
    "no offset 0": (
        "Offset 0 is missing", with_change(offsets=lambda s: range(1, s) if s > 1 else range(1))),
    "one too many": ("one offset too many", with_change(offsets=lambda s: range(s + 1))),
    "zeros": ("are lost", with_change(head="zero")),
    "means": ("are averaged", with_change(head="mean")),
    "ring": ("closed to a ring", with_change(ring=True)),
    "full size": ("last block is short", with_change(full=True)),
    "over characters": ("over the characters", with_change(axis=0)),
    "even": ("same weight", with_change(even=True)),
    "none": ("`return`", lambda *given: None),
}  # fmt: skip


def test_subwords_of_every_offset_are_right():
    verdict = check_offset_subwords(by_character)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), OFFSETS_WRONG.values(), ids=OFFSETS_WRONG)
def test_mistakes_of_offsets_by_name(words, solution, refuses):
    refuses(check_offset_subwords(solution), words)
