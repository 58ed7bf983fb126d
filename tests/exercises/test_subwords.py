"""Lesson 43's checks: the ids of bytes, and calibrated weights."""

from collections.abc import Callable
from typing import Any

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


def ids(text: str, first: int = 3, end: tuple[int, ...] = (1,)) -> Tensor:
    return torch.tensor([*(byte + first for byte in text.encode()), *end])


def by_character(x, w, sizes):
    rows = []
    for i in range(len(x)):
        row = []
        for size in sizes:
            for o in range(size):
                block = [j for j in range(o, len(x)) if (j - o) // size == (i - o) // size]
                row.append(x[block if i >= o else [i]].mean(0))
        rows.append(torch.stack(row))
    candidates = torch.stack(rows)
    return ((candidates @ w).softmax(-1)[..., None] * candidates).sum(1)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_byte_ids, lambda text: torch.tensor(encode(text))),
    (check_byte_ids, lambda text: F.pad(ids(text, end=()), (0, 1), value=1)),
    (check_calibrate, by_loops),
    (check_calibrate, attended),
    (check_offset_subwords, by_character),
]


TestAnswers = answers_to(RIGHT)
