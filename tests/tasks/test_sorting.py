import numpy as np

from attnlab.tasks.sorting import Sorting


def test_a_row_by_hand_keeps_what_repeats(monkeypatch):
    task = Sorting(items=5, symbols=11)
    rows = np.array([[10, 2, 0, 2, 1], [7, 3, 5, 0, 9]])
    monkeypatch.setattr("attnlab.tasks.copying.draw_contents", lambda *_: rows)
    batch = task.batch("train", 2, seed=0)
    assert batch.inputs.tolist() == [
        [10, 2, 0, 2, 1, 11, 0, 1, 2, 2],
        [7, 3, 5, 0, 9, 11, 0, 3, 5, 7],
    ]
    assert batch.targets.tolist() == [[-100] * 5 + [0, 1, 2, 2, 10], [-100] * 5 + [0, 3, 5, 7, 9]]


def test_a_row_for_an_encoder_and_a_decoder_by_hand(monkeypatch):
    task = Sorting(items=3, symbols=11, kind="encoder_decoder")
    monkeypatch.setattr("attnlab.tasks.copying.draw_contents", lambda *_: np.array([[7, 2, 1]]))
    batch = task.batch("train", 1, seed=0)
    assert batch.source.tolist() == [[7, 2, 1]]
    assert batch.inputs.tolist() == [[11, 1, 2]]
    assert batch.targets.tolist() == [[1, 2, 7]]


def test_it_is_called_by_its_own_name():
    example = Sorting(items=5).example()
    assert example.title == "Sorting 5 symbols"
    assert "from the smallest to the largest" in example.description
