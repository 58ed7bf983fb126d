"""Gist: one far stretch of two symbols, asked about as a whole and place by place."""

import pytest
import torch

from attnlab.tasks.gist import Gist


def test_stretch_words_and_questions_stand_where_they_should() -> None:
    task = Gist(length=41, stretch=13, questions=7, words=5)
    inputs = task.batch("train", 211, seed=3).inputs
    assert task.gap == 20
    assert (inputs[:, 0] == 2).all()
    assert set(inputs[:, 1:14].flatten().tolist()) == {0, 1}
    assert set(inputs[:, 14:34].flatten().tolist()) == set(range(17, 22))
    assert (inputs[:, 34] == 3).all()
    asked = inputs[:, 35:]
    assert set(asked.flatten().tolist()) == set(range(4, 17))
    assert all(len(set(row.tolist())) == 6 for row in asked)


def test_answers_are_the_majority_and_the_symbols_asked_for() -> None:
    task = Gist(length=41, stretch=13, questions=7, words=5)
    batch = task.batch("train", 211, seed=5)
    assert (batch.targets[:, :34] == -100).all()
    for row, answers in zip(batch.inputs.tolist(), batch.targets[:, 34:].tolist(), strict=True):
        stretch = row[1:14]
        assert answers[0] == max((0, 1), key=stretch.count)
        assert answers[1:] == [stretch[question - 4] for question in row[35:]]


def test_what_the_gist_alone_is_worth() -> None:
    task = Gist(length=32, stretch=11, questions=12)
    batch = task.batch("train", 5003, seed=7)
    accuracy = (batch.targets[:, -11:] == batch.targets[:, -12:-11]).double().mean()
    assert abs(accuracy - task.by_gist) < 0.01
    assert Gist(stretch=11).by_gist == 0.5 + 252 / 2**11


def test_the_example_says_what_there_is() -> None:
    example = Gist(length=41, stretch=13, questions=7).example(2)
    assert example.tokens[0] == "<s>"
    assert example.tokens[34] == "most?"
    place = int(example.tokens[35].removesuffix("?"))
    assert example.labels[35] == example.tokens[place] in ("●", "○")
    assert f"it was {example.labels[34]}; {place}? asks" in example.description
    assert example.title == "A stretch of 13, and questions 20 words later"


def test_more_words_than_have_a_name() -> None:
    task = Gist(words=14, stretch=11, questions=2)
    assert task.tokens(torch.tensor([1, 2, 3, 4, 14, 15, 28])) == [
        *("○", "<s>", "most?", "1?", "11?", "the", "w13"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stretch": 30}, "odd"),
        ({"stretch": 7, "questions": 9}, "at most stretch"),
        ({"length": 40}, "do not fit"),
        ({"length": 23, "stretch": 7, "questions": 3}, "too few"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gist(**options)
