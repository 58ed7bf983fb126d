"""Denoising: both codings, where marks may stand, and the order of the answers."""

import pytest
import torch

from attnlab.tasks.denoising import Denoising


@pytest.mark.parametrize("closing", [0, 11])
def test_the_coding_of_2020(closing: int) -> None:
    task = Denoising(steps=31, marked=5, closing=closing)
    inputs, asked = task.values("train", 307, seed=2)
    assert inputs.shape == (307, 32, 2)
    assert (inputs[:, -1] == torch.tensor([0.0, 1.0])).all()
    marks = inputs[:, :-1, 1]
    assert set(marks.unique().tolist()) == {-1, 0}
    assert ((marks == 0).sum(1) == 5).all()
    marked = (marks == 0).any(0)
    assert marked[: 31 - closing].all()
    assert not marked[31 - closing :].any()
    assert inputs[:, :-1, 0].std().item() == pytest.approx(1, abs=0.05)
    for row in range(17):
        times = [t for t in range(31) if inputs[row, t, 1] == 0]
        assert asked[row].tolist() == [inputs[row, t, 0].item() for t in times]


@pytest.mark.parametrize("closing", [0, 1, 11])
def test_the_coding_of_2021(closing: int) -> None:
    task = Denoising(steps=31, marked=5, closing=closing, coding="2021")
    inputs, asked = task.values("train", 307, seed=2)
    assert inputs.shape == (307, 35, 2)
    assert (inputs[:, 30] == torch.tensor([0.0, -1.0])).all()
    assert (inputs[:, 31:] == 0).all()
    marks = inputs[:, :30, 1]
    assert set(marks.unique().tolist()) == {0, 1}
    assert ((marks == 1).sum(1) == 5).all()
    marked = (marks == 1).any(0)
    assert marked[: 31 - max(closing, 1)].all()
    assert not marked[31 - max(closing, 1) :].any()
    for row in range(17):
        times = [t for t in range(30) if inputs[row, t, 1] == 1]
        assert asked[row].tolist() == [inputs[row, t, 0].item() for t in times]


@pytest.mark.parametrize("coding", ["2020", "2021"])
def test_the_class_is_the_signs_as_a_binary_number(coding: str) -> None:
    task = Denoising(steps=19, marked=3, closing=2, coding=coding)
    classes, asked = task.batch("train", 211, 5).targets, task.values("train", 211, 5)[1]
    for number, three in zip(classes.tolist(), asked.tolist(), strict=True):
        assert f"{number:03b}" == "".join("1" if each > 0 else "0" for each in three)
    assert set(classes.tolist()) == set(range(8))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 9, "closing": 5}, "leaves 4 places for marked=5 numbers: give more steps"),
        ({"steps": 5, "closing": 0, "coding": "2021"}, "leaves 4 places for marked=5"),
        ({"steps": 5, "closing": 9}, "leaves 0 places"),
        ({"marked": 17}, "at most 16, for each number doubles the classes, got 17"),
        ({"coding": "2022"}, "no coding '2022'; did you mean '2021' or '2020'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Denoising(**options)
