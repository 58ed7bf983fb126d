"""Lesson 20's checks: Factorized Dense, and a mixture of logits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnlab.exercises import check_factorized, check_mixture


def by_loops(a, b):
    n, wide = a.shape[0], a.shape[1] * b.shape[1]
    out = torch.empty(n, wide, dtype=a.dtype)
    for i in range(n):
        for j in range(wide):
            out[i, j] = a[i, j % a.shape[1]] * b[i, j // a.shape[1]]
    return out


def tile_and_repeat(a, b):
    return a.repeat(1, b.shape[1]) * b.repeat_interleave(a.shape[1], dim=1)


def mixture(numbers, first, second):
    alpha = numbers.exp() / numbers.exp().sum()
    return torch.softmax(alpha[0] * first + alpha[1] * second, dim=1)


@pytest.mark.parametrize(
    ("check", "right"),
    [(check_factorized, by_loops), (check_factorized, tile_and_repeat), (check_mixture, mixture)],
)
def test_right_solutions_are_right(check: Callable[..., Any], right: Callable[..., Any]) -> None:
    assert check(right).right, check(right).message


def mixed_logits(s, x, y):
    return torch.einsum("s,snm->nm", s.softmax(0), torch.stack((x, y)))


def by_their_sum(s, x, y):
    return (s[0] / s.sum() * x + s[1] / s.sum() * y).softmax(-1)


WRONG_FACTORIZED = {
    "roles": ("A and B are exchanged", lambda a, b: tile_and_repeat(b, a)),
    "tiled": ("both are tiled", lambda a, b: a.repeat(1, b.shape[1]) * b.repeat(1, a.shape[1])),
    "repeated": (
        "both are repeated",
        lambda a, b: a.repeat_interleave(b.shape[1], 1) * b.repeat_interleave(a.shape[1], 1),
    ),
    "added": (
        "are added",
        lambda a, b: a.repeat(1, b.shape[1]) + b.repeat_interleave(a.shape[1], 1),
    ),
    "side by side": ("side by side", lambda a, b: torch.cat((a, b), 1)),
    "one": ("only A is tiled", lambda a, b: a.repeat(1, b.shape[1])),
    "other": ("only B is repeated", lambda a, b: b.repeat_interleave(a.shape[1], 1)),
    "softmax": ("It returns the softmax", lambda a, b: tile_and_repeat(a, b).softmax(-1)),
    "not joined": ("flatten", lambda a, b: torch.einsum("na,nb->nba", a, b)),
    "nothing": ("None", lambda a, b: None),
}
WRONG_MIXTURE = {
    "maps": (
        "mixes two maps",
        lambda s, x, y: (s.softmax(0) @ torch.stack((x, y)).softmax(-1).flatten(1)).view_as(x),
    ),
    "sum": ("α is missing", lambda s, x, y: (x + y).softmax(-1)),
    "raw": ("used as α directly", lambda s, x, y: (s[0] * x + s[1] * y).softmax(-1)),
    "flipped": ("α is exchanged", lambda s, x, y: mixture(s.flip(0), x, y)),
    "logits": ("mixed logits", mixed_logits),
    "queries": ("columns sum to one", lambda s, x, y: mixed_logits(s, x, y).softmax(0)),
    "share": ("divided by their sum", by_their_sum),
    "nothing": ("None", lambda s, x, y: None),
}


@pytest.mark.parametrize("name", WRONG_FACTORIZED)
def test_wrong_factorized_logits_are_named(name, refuses):
    words, wrong = WRONG_FACTORIZED[name]
    refuses(check_factorized(wrong), words)


@pytest.mark.parametrize("name", WRONG_MIXTURE)
def test_wrong_mixtures_are_named(name, refuses):
    words, wrong = WRONG_MIXTURE[name]
    refuses(check_mixture(wrong), words)


def test_mistakes_are_distinguished(tells_apart):
    tells_apart(check_factorized, WRONG_FACTORIZED)
    tells_apart(check_mixture, WRONG_MIXTURE)
