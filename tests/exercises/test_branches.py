"""Lesson 50's check: the mean along each branch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_upward_average


def by_loops(s: Tensor, covers: Tensor, leaf: int = 1, counted: int = 1) -> Tensor:
    out = torch.zeros_like(s[1:])
    for i in range(len(covers)):
        for j in range(covers.shape[1]):
            if covers[i, j]:
                branch = [s[t + 1, j] for t in range(i + 1) if covers[t, j]]
                out[i, j] = (leaf * s[0, j] + sum(branch)) / (counted + len(branch))
    return out


def downwards(s: Tensor, covers: Tensor) -> Tensor:
    turned = torch.cat([s[:1], s[1:].flip(0)])
    return by_loops(turned, covers.flip(0)).flip(0)


def rows_counted(s: Tensor, covers: Tensor) -> Tensor:
    sums = [(s[: i + 2].sum(0) / (i + 2)) for i in range(len(covers))]
    return torch.stack(sums) * covers[..., None]


def unmasked(s: Tensor, covers: Tensor) -> Tensor:
    return s.cumsum(0)[1:] / (covers.cumsum(0)[..., None] + 1)


RIGHT: list[Callable[..., Tensor]] = [
    lambda s, covers: unmasked(s, covers) * covers[..., None],
]

WRONG: dict[str, tuple[str, Any]] = {
    "as released": ("The sum has the leaf", lambda s, c: by_loops(s, c, counted=0)),
    "leaf counted": ("missing from the sum", lambda s, c: by_loops(s, c, leaf=0)),
    "no leaf": ("mean of the nodes alone", lambda s, c: by_loops(s, c, leaf=0, counted=0)),
    "sums": ("Nothing is divided", lambda s, c: s.cumsum(0)[1:] * c[..., None]),
    "rows": ("counts every row", rows_counted),
    "ends": ("the node and the leaf alone", lambda s, c: (s[:1] + s[1:]) / 2 * c[..., None]),
    "down": ("down from the root", downwards),
    "zeros": ("whether a vector is zero", lambda s, c: by_loops(s, s[1:].abs().sum(-1) > 0)),
    "unmasked": ("Outside the subtrees", unmasked),
    "across": (
        "along the leaves",
        lambda s, c: s.cumsum(1)[1:] / (c.cumsum(1)[..., None] + 1) * c[..., None],
    ),
    "in place": ("still needs", lambda s, c: by_loops(s, c) + 0 * s.mul_(2)[1:]),
    "None": ("`return`", lambda s, c: None),
    "all rows": ("Wrong shape", lambda s, c: s.cumsum(0)),
    "loops": ("there is a loop over nodes or leaves", by_loops),
}


@pytest.mark.parametrize("answer", RIGHT)
def test_right_answers_are_right(answer: Callable[..., Tensor]) -> None:
    verdict = check_upward_average(answer)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("sentence", "answer"), WRONG.values(), ids=WRONG)
def test_mistakes_are_named(sentence: str, answer: Any) -> None:
    verdict = check_upward_average(answer)
    assert not verdict.right
    assert sentence in verdict.message, verdict.message
