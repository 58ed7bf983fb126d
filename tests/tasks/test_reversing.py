import numpy as np

from attnlab.tasks.reversing import Reversing


def test_a_row_by_hand(monkeypatch):
    task = Reversing(items=3, symbols=11)
    monkeypatch.setattr("attnlab.tasks.copying.draw_contents", lambda *_: np.array([[0, 2, 1]]))
    batch = task.batch("train", 1, seed=0)
    assert batch.inputs.tolist() == [[0, 2, 1, 11, 1, 2]]
    assert batch.targets.tolist() == [[-100, -100, -100, 1, 2, 0]]


def test_a_row_for_an_encoder_and_a_decoder_by_hand(monkeypatch):
    task = Reversing(items=3, symbols=11, kind="encoder_decoder")
    monkeypatch.setattr("attnlab.tasks.copying.draw_contents", lambda *_: np.array([[0, 2, 1]]))
    batch = task.batch("train", 1, seed=0)
    assert batch.source.tolist() == [[0, 2, 1]]
    assert batch.inputs.tolist() == [[11, 1, 2]]
    assert batch.targets.tolist() == [[1, 2, 0]]


def test_it_is_called_by_its_own_name():
    example = Reversing(items=5).example()
    assert example.title == "Reversing 5 symbols"
    assert "backwards" in example.description
