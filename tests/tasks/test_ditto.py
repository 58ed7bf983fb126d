"""Ditto: a chain of letters, marks that repeat, and a start token that says nothing."""

import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.ditto import Ditto


def test_after_a_mark_the_letter_before_it_is_repeated() -> None:
    task = Ditto(length=23, symbols=5, every=3)
    batch = task.batch("train", 7, seed=3)
    seen = 0
    for text, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert text[0] == task.begin
        assert targets[0] == UNSCORED
        assert text[2:] == targets[1:-1]
        for place, token in enumerate(text):
            if token == task.mark:
                seen += 1
                assert targets[place] == text[place - 1] < task.symbols
    assert seen > 20


def test_letters_follow_the_chain_that_is_told() -> None:
    task = Ditto(length=31, symbols=3, every=4, start="none")
    batch = task.batch("validation", 512, seed=0)
    told = torch.from_numpy(task.probabilities())
    torch.testing.assert_close(told.sum(1), torch.ones(3).double())
    for letter in range(3):
        after = batch.targets[batch.inputs == letter]
        found = torch.bincount(after, minlength=4) / len(after)
        torch.testing.assert_close(found.double(), told[letter], atol=0.03, rtol=0)


def test_the_start_stands_anywhere_but_before_a_mark() -> None:
    task = Ditto(length=13, symbols=5, every=2, start="random")
    batch = task.batch("train", 400, seed=0)
    starts = batch.inputs == task.begin
    assert (starts.sum(1) == 1).all()
    assert (batch.targets[starts] == UNSCORED).all()
    assert starts.any(0).all()
    after = batch.inputs[:, 1:][starts[:, :-1]]
    assert (after != task.mark).all()
    marks = (batch.inputs == task.mark)[:, 1:]
    assert (batch.targets[:, 1:][marks] == batch.inputs[:, :-1][marks]).all()


def test_who_may_not_attend_to_itself_sees_those_before() -> None:
    task = Ditto(length=5, symbols=7, own=False)
    allowed = task.batch("train", 3, seed=0).structure.allowed
    expected = torch.ones(5, 5).bool().tril(-1)
    expected[0, 0] = True
    assert allowed.shape == (3, 5, 5)
    assert all(torch.equal(each, expected) for each in allowed)
    assert Ditto().batch("train", 3, seed=0).structure is None


def test_only_marks_are_scored() -> None:
    task = Ditto(scored="marks")
    batch = task.batch("train", 5, seed=0)
    assert torch.equal(batch.targets != UNSCORED, batch.inputs == task.mark)


def test_what_the_options_may_be() -> None:
    with pytest.raises(ValueError, match="start"):
        Ditto(start="last")
    with pytest.raises(ValueError, match="scored"):
        Ditto(scored="letters")
    with pytest.raises(TypeError, match="own"):
        Ditto(own=1)
    with pytest.raises(ValueError, match="different sequences"):
        Ditto(length=4, symbols=3)
