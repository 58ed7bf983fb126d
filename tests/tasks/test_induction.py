from itertools import pairwise

import numpy as np
import pytest

from attnlab.tasks.induction import Induction
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    task = Induction(length=8, symbols=37)
    rows = np.array([[2, 0, 3, 2, 0, 3, 2, 0, 3], [5, 1, 7, 4, 5, 1, 7, 4, 5]])
    monkeypatch.setattr("attnlab.tasks.induction.draw_contents", lambda *_: rows)
    batch = task.batch("train", 2, seed=0)
    assert batch.inputs.tolist() == rows[:, :-1].tolist()
    assert batch.targets.tolist() == [
        [-100, -100, -100, 0, 3, 2, 0, 3],
        [-100, -100, -100, -100, 1, 7, 4, 5],
    ]
    assert task.example().title == "A run of 3 symbols, repeated"


def test_what_is_scored_follows_from_the_past_and_nothing_else_is_scored():
    batch = Induction(length=29, symbols=17).batch("validation", 53, seed=0)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        for i, (token, answer) in enumerate(zip(inputs, targets, strict=True)):
            followers = {b for a, b in pairwise(inputs[: i + 1]) if a == token}
            assert followers == (set() if answer == -100 else {answer})


def test_the_distance_to_look_back_differs_from_row_to_row():
    batch = Induction(length=29, symbols=17).batch("train", 503, seed=0)
    runs = (batch.targets == -100).sum(dim=1)
    assert set(runs.tolist()) == set(range(7, 15))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_sequence_decides_the_split(split):
    batch = Induction(length=13, symbols=17).batch(split, 307, seed=0)
    whole = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
    assert in_split(whole, split).all()


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match=r"length should be at least 8, got 7"):
        Induction(length=7)
    with pytest.raises(ValueError, match="length=64 needs symbols of at least 32, got symbols=31"):
        Induction(symbols=31)
    with pytest.raises(ValueError, match="only 12 different sequences"):
        Induction(length=8, symbols=4)
