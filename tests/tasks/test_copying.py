import numpy as np
import pytest
import torch

from attnlab.tasks.copying import Copying
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    task = Copying(items=3, symbols=11)
    monkeypatch.setattr(
        "attnlab.tasks.copying.draw_contents", lambda *_: np.array([[0, 2, 1], [4, 4, 3]])
    )
    batch = task.batch("train", 2, seed=0)
    assert batch.inputs.tolist() == [[0, 2, 1, 11, 0, 2], [4, 4, 3, 11, 4, 4]]
    assert batch.targets.tolist() == [[-100, -100, -100, 0, 2, 1], [-100, -100, -100, 4, 4, 3]]
    assert task.tokens(batch.inputs[0]) == ["a", "c", "b", "|", "a", "c"]


def test_a_row_for_an_encoder_and_a_decoder_by_hand(monkeypatch):
    task = Copying(items=3, symbols=11, kind="encoder_decoder")
    monkeypatch.setattr("attnlab.tasks.copying.draw_contents", lambda *_: np.array([[0, 2, 1]]))
    batch = task.batch("train", 1, seed=0)
    assert batch.source.tolist() == [[0, 2, 1]]
    assert batch.inputs.tolist() == [[11, 0, 2]]
    assert batch.targets.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_list_decides_the_split(split):
    batch = Copying(items=5, symbols=7).batch(split, 307, seed=0)
    assert in_split(batch.inputs[:, :5].numpy(), split).all()


def test_both_kinds_show_the_same_lists():
    sequence = Copying(items=5, symbols=7).batch("train", 11, seed=2)
    source = Copying(items=5, symbols=7, kind="encoder_decoder").batch("train", 11, seed=2)
    assert torch.equal(sequence.inputs[:, :5], source.source)


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match="items should be at least 2, got 1"):
        Copying(items=1)
    with pytest.raises(ValueError, match=r"symbols should be at least 2, got 1"):
        Copying(symbols=1)
    with pytest.raises(ValueError, match="no kind 'classifier'"):
        Copying(kind="classifier")
    with pytest.raises(ValueError, match="only 512 different sequences"):
        Copying(items=9, symbols=2)
    with pytest.raises(ValueError, match="only 512 different sequences"):
        Copying(items=np.int8(9), symbols=np.int8(2))
