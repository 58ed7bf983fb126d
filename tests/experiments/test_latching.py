"""Latching: what is trained, and that a bit of a few steps is learned."""

import torch

from attnlab.experiments import latching
from attnlab.tasks.copy_first import CopyFirst


def test_quick_rows_come_for_every_cell() -> None:
    found = [row.figure for row in latching.rows(quick=True, threads=1)]
    assert found == [f"{cell}, 5 steps, seed 0" for cell in ("gru", "lstm", "brc", "nbrc")]


def test_a_short_sequence_is_learned_and_the_same_seed_gives_the_same() -> None:
    task = CopyFirst(length=3)
    one, other = (latching.train("nbrc", task, 0, steps=60) for _ in range(2))
    assert latching.right(one, task) > 90
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
