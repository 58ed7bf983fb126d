"""Lesson 61's checks: the keys of the induction share, and an induction head by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_induction_head, check_induction_keys
from attnlab.lens.head_kinds import find_heads
from tests.exercises.frame import answers_to


def keys(tokens: Sequence[int]) -> Tensor:
    """By loops."""
    n = len(tokens)
    found = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(i - 1):
            found[i, j + 1] = tokens[j] == tokens[i]
    return found


def head(x: Tensor, sharpness: float) -> Tensor:
    """Query by query."""
    before, out = [0 * x[0], *x[:-1]], []
    for i in range(len(x)):
        weights = torch.stack([sharpness * x[i] @ before[j] for j in range(i + 1)]).softmax(0)
        out.append(sum(w * x[j] for j, w in enumerate(weights)))
    return torch.stack(out)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_induction_keys, keys),
    (check_induction_keys, lambda tokens: keys(tokens).long()),
    (check_induction_head, head),
]

TestAnswers = answers_to(RIGHT)


def test_the_keys_are_those_that_the_head_finder_counts() -> None:
    tokens = torch.randint(4, (11,), generator=torch.Generator().manual_seed(0))
    counted = keys(tokens.tolist())
    w = torch.rand(1, 1, 11, 11, generator=torch.Generator().manual_seed(1)).tril()
    w = w / w.sum(-1, keepdim=True)
    (found,) = find_heads({"a": w}, tokens[None])
    shares = (w[0, 0] * counted).sum(1)[counted.any(1)]
    assert found.shares["induction"] == pytest.approx(shares.mean().item(), abs=1e-6)


def test_a_sharp_head_passes_on_what_came_next() -> None:
    """The head of the solution, on a run of different tokens that repeats."""
    x = torch.eye(6)[torch.arange(18) % 6]
    out = head(x, 50.0)
    assert torch.allclose(out[6:], torch.eye(6)[torch.arange(7, 19) % 6], atol=1e-6)
