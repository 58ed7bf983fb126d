"""Selective copying: where the symbols stand, what is asked for, and which options are refused."""

import numpy as np
import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.selective_copying import SelectiveCopying
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    task = SelectiveCopying(items=3, symbols=11, places=5, spacing="together")
    monkeypatch.setattr(
        "attnlab.tasks.selective_copying.draw_contents", lambda *_: np.array([[0, 2, 1]])
    )
    batch = task.batch("train", 1, seed=0)
    assert batch.inputs.tolist() == [[0, 2, 1, 11, 11, 12, 0, 2]]
    assert batch.targets.tolist() == [[UNSCORED] * 5 + [0, 2, 1]]
    assert task.tokens(batch.inputs[0]) == ["a", "c", "b", ".", ".", "|", "a", "c"]


def test_the_copy_is_what_stands_among_the_blanks_in_order():
    task = SelectiveCopying(items=5, symbols=7, places=13)
    batch = task.batch("train", 307, seed=1)
    read = batch.inputs[:, :13]
    assert (read == 7).sum(1).eq(8).all()
    assert (batch.inputs[:, 13] == 8).all()
    assert torch.equal(read[read != 7].view(307, 5), batch.targets[:, 13:])


def test_random_items_stand_at_every_place_equally_often():
    batch = SelectiveCopying(items=5, symbols=7, places=13).batch("train", 4001, seed=2)
    share = (batch.inputs[:, :13] != 7).double().mean(0)
    torch.testing.assert_close(share, torch.full_like(share, 5 / 13), rtol=0, atol=0.05)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_list_decides_the_split(split):
    batch = SelectiveCopying(items=5, symbols=7, places=13).batch(split, 307, seed=0)
    assert in_split(batch.targets[:, 13:].numpy(), split).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"items": 7, "places": 5}, "need a place each.*at least 7, got places=5"),
        ({"spacing": "regular"}, "spacing"),
        ({"items": 2, "symbols": 5}, "only 25 different sequences"),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SelectiveCopying(**options)
