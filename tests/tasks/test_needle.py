"""The needle: one key in the first half, asked for here and there after it and at the end."""

import pytest
import torch

from attnlab.tasks.needle import Needle


def test_one_key_in_the_first_half_and_one_answer() -> None:
    task = Needle(length=29, keys=5, words=7)
    batch = task.batch("train", 211, seed=3)
    is_key = batch.inputs < task.keys
    assert (is_key.sum(1) == 1).all()
    places = is_key.int().argmax(1)
    assert set(places.tolist()) == set(range(1, 29 // 2))
    assert (batch.inputs[:, 0] == 12).all()
    assert (batch.inputs[:, -1] == 13).all()
    asks = batch.inputs == 13
    assert torch.equal(asks, batch.targets != -100)
    assert not (asks & (torch.arange(29) <= places[:, None])).any()
    answers = batch.inputs.gather(1, places[:, None]).expand(-1, 29)
    assert torch.equal(batch.targets[asks], answers[asks])
    after = 27 - places
    assert 0.1 < ((asks.sum(1) - 1) / after).mean() < 0.15
    assert torch.equal(batch.targets[:, -1], batch.inputs[torch.arange(211), places])
    assert set(batch.targets[:, -1].tolist()) == set(range(5))


def test_the_example_says_where_it_stands() -> None:
    example = Needle(length=31).example(2)
    place = example.tokens.index(example.labels[-1])
    assert example.title == f"A needle {30 - place} tokens before the question"
    assert example.tokens[0] == "<s>"
    assert example.tokens[-1] == "?"


def test_more_words_than_have_a_name() -> None:
    task = Needle(words=37)
    assert task.tokens([0, 16, 16 + 36, task.vocab - 1]) == ["0", "the", "w36", "?"]


def test_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        Needle(length=8)
