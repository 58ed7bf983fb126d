import numpy as np
import pytest

from attnlab.tasks import UNSCORED
from attnlab.tasks.lookup import Lookup


def test_a_row_by_hand(monkeypatch):
    task = Lookup(length=16, questions=2, keys=5, values=3, words=2)
    # Values 0 to 2, pairs from 3 (key 0) to 17, questions from 18, words 23 and 24, 25 starts.
    row = [25, 23, 16, 24, 3, 23, 23, 8, 24, 10, 23, 24, 24, 26, 22, 19]
    monkeypatch.setattr("attnlab.tasks.lookup.draw_contents", lambda *_: np.array([row]))
    batch = task.batch("train", 1, seed=0)
    assert batch.inputs.tolist() == [row]
    assert batch.targets.tolist() == [[UNSCORED] * 14 + [1, 2]]
    shown = task.tokens(batch.inputs[0])
    assert [shown[place] for place in (0, 2, 4, 7, 9, 13, 14)] == (
        ["<s>", "k4=1", "k0=0", "k1=2", "k2=1", "|", "k4?"]
    )
    assert "k4? 1, k1? 2" in task.example().description


def test_one_token_in_four_is_a_pair_and_only_its_keys_are_asked_for():
    task = Lookup(length=41, questions=20, keys=13, values=3, words=5)
    batch = task.batch("validation", 101, seed=0)
    places, most_asked = set(), 0
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        shown = task.tokens(inputs)
        given = dict(token[1:].split("=") for token in shown if "=" in token)
        assert len([token for token in shown if "=" in token]) == len(given) == 10
        assert shown[0] == "<s>"
        assert shown[20] == "|"
        assert targets[:21] == [UNSCORED] * 21
        assert [int(given[token[1:-1]]) for token in shown[21:]] == targets[21:]
        places |= {place for place, token in enumerate(shown) if "=" in token}
        most_asked = max(most_asked, len(set(shown[21:])))
    assert places == set(range(1, 20))
    assert most_asked == 10


def test_sizes_that_leave_no_room_are_refused():
    with pytest.raises(ValueError, match="length=64 needs keys of at least 16, got keys=15"):
        Lookup(length=64, keys=15)
    assert Lookup(length=64, keys=16).pairs == 16
    with pytest.raises(ValueError, match="should be at most 10 with length=20, got questions=11"):
        Lookup(length=20, questions=11)
    assert Lookup(length=16, questions=8).batch("train", 3, 0).inputs.shape == (3, 16)


def test_fewer_pairs_among_more_words():
    task = Lookup(length=64, questions=2, keys=4, values=2, words=3, every=16)
    shown = task.tokens(task.batch("train", 1, seed=0).inputs[0])
    assert task.pairs == len([token for token in shown if "=" in token]) == 4
    with pytest.raises(ValueError, match=r"One position in 8 is a pair .* keys of at least 8"):
        Lookup(length=64, keys=7, every=8)
