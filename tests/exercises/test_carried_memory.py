"""Lesson 30's checks: how far a memory reaches, its update, a compression, and a reader."""

import pytest
import torch

from attnlab.exercises import (
    carried_memory,
    check_compress,
    check_compressive,
    check_next_memory,
    check_reach,
)
from attnlab.exercises.carried_memory import _GRADIENT


def next_memory(memory, segment, M):
    kept = list(memory.detach()) + list(segment.detach())
    return torch.stack(kept[len(kept) - min(M, len(kept)) :]) if M else memory[:0].detach()


def compress(old, s):
    return torch.stack([old[i : i + s].sum(0) / s for i in range(0, len(old) - s + 1, s)])


def read(x, Wq, Wk, Wv, c, M, k, s):
    """Token by token: lists of inputs."""
    short, memory, segment, out = [], [], [], []
    for token in x:
        if len(segment) == c:
            memory, segment = memory + segment, []
            if len(memory) > M:
                short += list(compress(torch.stack(memory[:c]), s))
                short, memory = short[-k:], memory[c:]
        segment.append(token)
        there = torch.stack(short + memory + segment)
        weights = torch.softmax((there @ Wk) @ (token @ Wq) / Wk.shape[1] ** 0.5, 0)
        out.append(weights @ (there @ Wv))
    return torch.stack(out)


RIGHT = [(check_next_memory, next_memory), (check_compress, compress), (check_compressive, read)]
TABLES = [
    (check_next_memory, carried_memory._NEXT_MISTAKEN),
    (check_compress, carried_memory._COMPRESS_MISTAKEN),
    (check_compressive, carried_memory._READ_MISTAKEN),
]


@pytest.mark.parametrize(("check", "function"), RIGHT)
def test_right_answers(check, function):
    assert check(function).right, check(function).message


@pytest.mark.parametrize(
    ("check", "sentence", "mistake"), [(c, *m) for c, table in TABLES for m in table]
)
def test_each_mistake_is_named(check, sentence, mistake):
    found = check(mistake)
    assert not found.right
    assert sentence in found.message


def test_a_memory_with_a_gradient_is_named():
    def kept(memory, segment, M):
        both = torch.cat([memory, segment])
        return both[max(0, len(both) - M) :]

    assert _GRADIENT in check_next_memory(kept).message


def test_how_far_a_memory_reaches():
    assert check_reach(12 * 384).right
    for wrong, sentence in carried_memory._REACH_MISTAKEN.items():
        found = check_reach(wrong)
        assert not found.right
        assert sentence[1:] in found.message
