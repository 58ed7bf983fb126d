"""Lesson 11's checks: the pairs of ETC, and BigBird's attention block by block."""

import torch
from torch import Tensor

from attnlab.exercises import check_bigbird
from tests.exercises.frame import answers_to

Drawn = list[list[int]]


def chosen(count: int, drawn: Drawn) -> Tensor:
    """(count, count) bool: True where a block is a key of another."""
    near = torch.ones(count, count).tril(1).triu(-1).bool()
    near[[0, -1]] = near[:, [0, -1]] = True
    for b, links in enumerate(drawn):
        near[b, links] = True
    return near


def by_mask(q: Tensor, k: Tensor, v: Tensor, block: int, drawn: Drawn) -> Tensor:
    """All pairs under a mask of blocks."""
    allowed = chosen(len(q) // block, drawn)
    allowed = allowed.repeat_interleave(block, 0).repeat_interleave(block, 1)
    scores = (q @ k.T / q.shape[1] ** 0.5).masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1) @ v


def in_blocks(q: Tensor, k: Tensor, v: Tensor, block: int, drawn: Drawn) -> Tensor:
    """Only the chosen blocks."""
    out = []
    for b, row in enumerate(chosen(len(q) // block, drawn)):
        keys, values = (x.view(-1, block, x.shape[1])[row].flatten(0, 1) for x in (k, v))
        scores = q[b * block : (b + 1) * block] @ keys.T / q.shape[1] ** 0.5
        out.append(scores.softmax(-1) @ values)
    return torch.cat(out)


RIGHT = [(check_bigbird, in_blocks)]
MASK = {"mask": ("no pair is skipped", by_mask)}

TestAnswers = answers_to(RIGHT, [(check_bigbird, MASK)])


def test_messages_do_not_print_the_draws() -> None:
    assert "drawn 8 lists)" in check_bigbird(lambda *given: None).message
