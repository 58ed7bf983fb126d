import pytest
import torch

from attnlab.tasks.addition import Addition
from attnlab.tasks.sequences import in_split


def number(digits: list[int]) -> int:
    """Written with the most significant digit first."""
    return int("".join(map(str, digits)))


def test_a_row_by_hand(monkeypatch):
    # 27 + 85 = 112; numbers are drawn with the least significant digit first.
    drawn = torch.tensor([[7, 2, 5, 8]]).numpy()
    monkeypatch.setattr("attnlab.tasks.addition.draw_contents", lambda *_: drawn)
    batch = Addition(digits=2).batch("train", 1, seed=0)
    assert batch.inputs.tolist() == [[2, 7, 10, 8, 5, 11, 1, 1]]
    assert batch.targets.tolist() == [[-100] * 5 + [1, 1, 2]]
    task = Addition(digits=2, reverse=True)
    batch = task.batch("train", 1, seed=0)
    assert task.tokens(batch.inputs[0]) == ["7", "2", "+", "5", "8", "=", "2", "1"]
    assert batch.targets[0, 5:].tolist() == [2, 1, 1]
    assert task.example().description == "72+58=211, the least significant digit first."


@pytest.mark.parametrize("reverse", [False, True])
def test_the_answer_is_the_sum(reverse):
    batch = Addition(digits=5, reverse=reverse).batch("validation", 101, seed=0)
    for inputs, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        parts = [inputs[:5], inputs[6:11], targets[11:]]
        first, second, found = (number(part[::-1] if reverse else part) for part in parts)
        assert first + second == found
        assert (inputs[5], inputs[11]) == (10, 11)
        assert set(targets[:11]) == {-100}


def test_carries_run_through_all_digits(monkeypatch):
    drawn = torch.tensor([[9, 9, 9, 1, 0, 0]]).numpy()
    monkeypatch.setattr("attnlab.tasks.addition.draw_contents", lambda *_: drawn)
    batch = Addition(digits=3).batch("train", 1, seed=0)
    assert batch.targets[0, 7:].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_two_numbers_decide_the_split(split):
    batch = Addition(digits=3, reverse=True).batch(split, 307, seed=0)
    numbers = torch.cat([batch.inputs[:, :3], batch.inputs[:, 4:7]], dim=1)
    assert in_split(numbers.numpy(), split).all()


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match="digits should be at least 2, got 1"):
        Addition(digits=1)
    with pytest.raises(TypeError, match="reverse"):
        Addition(reverse="yes")
