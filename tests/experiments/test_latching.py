"""The experiment `latching`, small: a curriculum that is earned, scores, and stored rows."""

import pytest
import torch
from torch import Tensor, nn

from attnlab.experiments import latching, stored
from attnlab.experiments.latching import (
    CELLS,
    LONGEST,
    SHORTEST,
    build,
    problem,
    right,
    train,
)


class Says(nn.Module):
    """Answers with the class that ``answer`` gives for each row."""

    def __init__(self, answer) -> None:
        super().__init__()
        self.answer, self.bias = answer, nn.Parameter(torch.zeros(()))

    def forward(self, numbers: Tensor) -> Tensor:
        return 10 * nn.functional.one_hot(self.answer(numbers), 4).float() + self.bias


def first(numbers: Tensor) -> Tensor:
    return (numbers[:, 0, 0] > 0).long()


def marked(numbers: Tensor) -> Tensor:
    value, mark = numbers.unbind(-1)
    one, two = (value[mark == 0].view(-1, 2) > 0).long().unbind(1)
    return 2 * one + two


@pytest.mark.parametrize(("task", "knows"), [("copy first", first), ("denoising", marked)])
def test_scores_count_answers(task: str, knows) -> None:
    found = problem(task, 17)
    assert right(Says(knows), found) == 100
    assert right(Says(lambda x: knows(x) * 0 + 1), found) == pytest.approx(
        50 if task == "copy first" else 25, abs=5
    )


def test_marked_numbers_stand_in_the_first_half() -> None:
    mark = problem("denoising", 20).batch("train", 50, seed=0).inputs[..., 1]
    assert mark.shape == (50, 21)
    assert (mark[:, 10:20] == -1).all()
    assert (mark[:, :10] == 0).sum(1).eq(2).all()


def test_sequences_become_longer_when_the_answers_are_right(monkeypatch) -> None:
    monkeypatch.setattr(latching, "build", lambda *_: Says(first))
    _, lengths = train("copy first", "gru", 0, updates=240)
    assert lengths[:11] == [SHORTEST] * 10 + [8]
    assert lengths[10:31:10] == [8, 11, 15]
    assert lengths[-1] == max(lengths) == LONGEST
    monkeypatch.setattr(latching, "build", lambda *_: Says(lambda x: first(x) * 0))
    assert set(train("copy first", "gru", 0, updates=40)[1]) == {SHORTEST}
    assert set(train("copy first at once", "gru", 0, updates=2)[1]) == {LONGEST}


@pytest.mark.parametrize("cell", CELLS)
def test_a_layer_reads_no_answer_from_the_future(cell: str) -> None:
    """The last step alone is read, and every cell is causal: the outputs before do not change."""
    model, numbers = build("denoising", cell, 1), torch.randn(3, 19, 2)
    changed = numbers.clone()
    changed[:, 11:] = 5
    torch.testing.assert_close(model.read(numbers)[:, :11], model.read(changed)[:, :11])
    assert model(numbers).shape == (3, 4)


def test_a_short_sequence_is_learned_and_the_same_seed_gives_the_same() -> None:
    found = []
    for elsewhere in (3, 4):  # a seed that must not matter
        torch.manual_seed(elsewhere)
        found.append(train("copy first", "nbrc", 0, updates=80))
    (one, lengths), (other, _) = found
    assert lengths[-1] > SHORTEST
    assert right(one, problem("copy first", SHORTEST)) > 90
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_stored_lengths_are_those_of_the_curriculum() -> None:
    for figure, value in stored("31_latching.json", "latching").items():
        if "length reached" in figure:
            assert SHORTEST <= value <= LONGEST
