"""Overwriting: a row by hand, which value is right, and which options are refused."""

import numpy as np
import pytest

from attnlab.tasks import UNSCORED
from attnlab.tasks.overwriting import Overwriting
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    task = Overwriting(keys=2, rounds=3, queries=2, values=7)
    # b4 a1 | a6 b0 | b2 a3; values begin at token 2, the separator is 9.
    writes = np.array([[1, 6, 0, 3, 0, 8, 1, 2, 1, 4, 0, 5]])
    monkeypatch.setattr("attnlab.tasks.overwriting.draw_contents", lambda *_: writes)
    monkeypatch.setattr("attnlab.tasks.overwriting.without_repeats", lambda *_: np.array([[1, 0]]))
    batch = task.batch("train", 1, seed=0)
    assert batch.inputs.tolist() == [[*writes[0], 9, 0, 5, 1]]
    assert batch.targets.tolist() == [[UNSCORED] * 13 + [5, UNSCORED, 4]]
    assert task.tokens(batch.inputs[0])[-4:] == ["|", "a", "3", "b"]
    assert "the newest value of a is 3, the newest value of b is 2" in task.example().description


@pytest.mark.parametrize("once", [0, 2])
def test_the_answer_is_the_newest_of_all_values(once):
    task = Overwriting(keys=5, rounds=3, once=once, queries=3, values=11)
    batch = task.batch("train", 211, seed=0)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        end = 2 * task.writes
        newest = dict(zip(inputs[0:end:2], inputs[1:end:2], strict=True))
        assert inputs[end] == 16
        assert targets[end + 1 :: 2] == [newest[key] for key in inputs[end + 1 :: 2]]
        assert len(set(inputs[end + 1 :: 2])) == 3
        assert set(targets[: end + 1] + targets[end + 2 :: 2]) == {UNSCORED}


def test_some_keys_are_written_in_the_first_round_alone():
    task = Overwriting(keys=5, rounds=3, once=2, queries=3, values=11)
    assert task.writes == 5 + 2 * 3
    batch = task.batch("train", 307, seed=0)
    keys = batch.inputs[:, :22:2]
    assert (keys[:, :5].sort(-1).values == np.arange(5)).all()
    times = np.stack([(keys == key).sum(1) for key in range(5)], 1)
    assert (np.sort(times, 1) == [1, 1, 3, 3, 3]).all()
    assert ((times == 1).mean(0) > 0.3).all()


def test_each_key_is_written_once_in_a_round():
    task = Overwriting(keys=5, rounds=3, queries=3, values=11)
    keys = task.batch("train", 101, seed=0).inputs[:, :30:2].view(101, 3, 5)
    assert (keys.sort(-1).values == np.arange(5)).all()


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_writes_decide_the_split(split):
    batch = Overwriting(keys=5, rounds=2, queries=3).batch(split, 307, seed=0)
    assert in_split(batch.inputs[:, :20].numpy(), split).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queries": 9}, "queries=9 and keys=8"),
        ({"keys": 2, "rounds": 1, "queries": 1, "values": 5}, "only 25 different sequences"),
        ({"rounds": 0}, "rounds should be at least 1"),
        ({"once": 8}, "once=8 and keys=8"),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Overwriting(**options)
