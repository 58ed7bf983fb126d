import numpy as np
import pytest

from attnlab.tasks.recall import Recall
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    task = Recall(pairs=3, queries=2, keys=5, values=7)
    # Keys c a e with values 6 0 3; tokens of values start at 5, the separator is 12.
    pairs = np.array([[2, 11, 0, 5, 4, 8]])
    monkeypatch.setattr("attnlab.tasks.recall.draw_contents", lambda *_: pairs)
    monkeypatch.setattr("attnlab.tasks.recall.without_repeats", lambda *_: np.array([[2, 0]]))
    batch = task.batch("train", 1, seed=0)
    assert batch.inputs.tolist() == [[2, 11, 0, 5, 4, 8, 12, 4, 8, 2]]
    assert batch.targets.tolist() == [[-100] * 7 + [8, -100, 11]]
    shown = ["c", "6", "a", "0", "e", "3", "|", "e", "3", "c"]
    assert task.tokens(batch.inputs[0]) == shown
    assert "beside e stood 3, beside c stood 6" in task.example().description


def test_keys_are_different_and_answers_are_in_the_list():
    batch = Recall(pairs=5, queries=3, keys=7, values=11).batch("validation", 101, seed=0)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        beside = dict(zip(inputs[0:10:2], inputs[1:10:2], strict=True))
        asked = inputs[11::2]
        assert len(beside) == 5
        assert set(beside) <= set(range(7))
        assert set(beside.values()) <= set(range(7, 18))
        assert len(set(asked)) == 3
        assert targets[11::2] == [beside[key] for key in asked]
        assert set(targets[:11] + targets[12::2]) == {-100}


def test_every_pair_is_asked_for():
    batch = Recall(pairs=5, queries=1, keys=7, values=11).batch("train", 211, seed=0)
    place = (batch.inputs[:, 0:10:2] == batch.inputs[:, -1:]).int().argmax(dim=1)
    assert set(place.tolist()) == set(range(5))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_list_of_pairs_decides_the_split_whatever_is_asked(split):
    batch = Recall(pairs=3, queries=2).batch(split, 307, seed=0)
    assert in_split(batch.inputs[:, :6].numpy(), split).all()


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match="pairs=17 needs keys of at least 17, got keys=16"):
        Recall(pairs=17)
    with pytest.raises(ValueError, match="queries=4 and pairs=3"):
        Recall(pairs=3, queries=4)
    with pytest.raises(ValueError, match=r"queries should be at least 1, got 0"):
        Recall(queries=0)
    with pytest.raises(ValueError, match="only 24 different sequences"):
        Recall(pairs=2, keys=3, values=2)
