import numpy as np
import pytest

from attnlab.tasks.duplication import Duplication
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    task = Duplication(items=3, symbols=11)
    monkeypatch.setattr(
        "attnlab.tasks.duplication.draw_contents", lambda *_: np.array([[0, 2, 1], [4, 4, 3]])
    )
    batch = task.batch("train", 2, seed=0)
    assert batch.inputs.tolist() == [[11, 0, 2, 1, 11, 0, 2], [11, 4, 4, 3, 11, 4, 4]]
    assert batch.targets.tolist() == [[-100] * 4 + [0, 2, 1], [-100] * 4 + [4, 4, 3]]
    assert task.length == batch.inputs.shape[1]
    assert task.model_options()["max_len"] >= 7


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_word_decides_the_split(split):
    batch = Duplication(items=5, symbols=7).batch(split, 307, seed=0)
    assert in_split(batch.inputs[:, 1:6].numpy(), split).all()


def test_it_is_one_sequence_and_called_by_its_own_name():
    assert Duplication(items=5).example().title == "Duplication 5 symbols"
    with pytest.raises(ValueError, match="duplication is for kind='language_model'"):
        Duplication(kind="encoder_decoder")
