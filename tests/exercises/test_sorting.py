"""Lesson 15's checks: what sorting costs, the normalisation, the layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_sinkhorn, check_sorted_attention, check_sorting_length
from tests.exercises.frame import answers_to


def divided(scores: Tensor, iterations: int, order: tuple[int, ...] = (-1, -2)) -> Tensor:
    for _ in range(iterations):
        for dim in order:
            scores = scores.log_softmax(dim)
    return scores.exp()


def in_place(scores: Tensor, iterations: int) -> Tensor:
    powers = scores.exp()
    for _ in range(iterations):
        powers = powers / powers.sum(-1, keepdim=True)
        powers = powers / powers.sum(-2, keepdim=True)
    return powers


def block_by_block(q: Tensor, k: Tensor, v: Tensor, sort: Tensor, block: int) -> Tensor:
    keys, values = k.split(block), v.split(block)
    outs = []
    for i, queries in enumerate(q.split(block)):
        mixed = [sum(sort[i, j] * x[j] for j in range(len(x))) for x in (keys, values)]
        own = torch.cat([mixed[0], keys[i]]), torch.cat([mixed[1], values[i]])
        outs.append((queries @ own[0].T / q.shape[1] ** 0.5).softmax(-1) @ own[1])
    return torch.cat(outs)


def dense(
    q: Tensor, k: Tensor, v: Tensor, sort: Tensor, block: int, *,
    scale: float = 7**-0.5, kinds: str = "both", values: bool = True,
) -> Tensor:  # fmt: skip
    into_place = torch.kron(sort, torch.eye(block, dtype=sort.dtype))
    mixed = into_place @ v if values else v
    same = torch.kron(torch.eye(len(sort)), torch.ones(block, block)).bool()
    scores = [(q @ x.T * scale).masked_fill(~same, -torch.inf) for x in (into_place @ k, k)]
    if kinds == "two":
        return scores[0].softmax(-1) @ mixed + scores[1].softmax(-1) @ v
    if kinds == "sorted":
        return scores[0].softmax(-1) @ mixed
    return torch.cat(scores, -1).softmax(-1) @ torch.cat([mixed, v])


def wrong(**changes: Any) -> Callable[..., Tensor]:
    return lambda *given: dense(*given, **changes)


RIGHT = [
    (check_sinkhorn, divided),
    (check_sorted_attention, block_by_block),
    (check_sorted_attention, dense),
]
SINKHORN_WRONG: dict[str, tuple[str, Any]] = {
    "columns first": ("columns are divided before rows", lambda s, i: divided(s, i, (-2, -1))),
    "rows": ("rows alone", lambda s, i: divided(s, i, (-1,))),
    "columns": ("columns alone", lambda s, i: divided(s, i, (-2,))),
    "logarithms": ("still in logarithms", lambda s, i: divided(s, i).log()),
    "one": ("one iteration only", lambda s, i: divided(s, 1)),
    "overflow": ("stay in logarithms", in_place),
    "None": ("`return`", lambda s, i: None),
}
LAYER_WRONG: dict[str, tuple[str, Any]] = {
    "transposed": ("s is transposed", lambda q, k, v, s, b: dense(q, k, v, s.T.contiguous(), b)),
    "values": ("values are not sorted", wrong(values=False)),
    "own": ("own block is missing", wrong(kinds="sorted")),
    "scale": ("not divided by √d", wrong(scale=1)),
    "two": ("two softmaxes", wrong(kinds="two")),
    "None": ("`return`", lambda *given: None),
}
TABLES = [(check_sinkhorn, SINKHORN_WRONG), (check_sorted_attention, LAYER_WRONG)]


TestAnswers = answers_to(RIGHT, TABLES)


def test_length_solves_the_equation() -> None:
    n = 8192
    assert n / 64 == 2 * 64
    assert check_sorting_length(n).right


@pytest.mark.parametrize(
    ("given", "words"), [(128, "number of blocks"), (4096, "B²"), (64, "length of a block")]
)
def test_wrong_lengths_are_named(given: int, words: str, refuses: Callable[..., None]) -> None:
    refuses(check_sorting_length(given), words)
