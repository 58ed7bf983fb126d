"""Rehearsed trainings: few steps are computed, and whoever looks at a run sees all of them."""

import pytest
import torch

from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.duplication import Duplication
from attnlab.train import fit
from attnlab.train.step import Stepper
from tests.browser import green, rehearsal

LESSON = "07_how_deep.ipynb"


@pytest.fixture
def computed(monkeypatch):
    """The steps after which weights are changed."""
    found, update = [], Stepper._update
    monkeypatch.setattr(Stepper, "step", Stepper.step)  # as it is again after the test

    def noted(self, norm, step):
        found.append(step)
        return update(self, norm, step)

    monkeypatch.setattr(Stepper, "_update", noted)
    return found


def train(steps):
    torch.manual_seed(0)
    task = Duplication(items=3)
    model = TinyTransformer(**task.model_options(), dim=8, layers=1, heads=1)
    seen = []
    history = fit(
        model, task, steps, batch_size=2, progress=False, evaluate_every=7, evaluate_batches=1,
        callbacks=[lambda state: seen.append(state.step)],
    )  # fmt: skip
    return history.rows, seen


def test_few_steps_are_computed_and_all_are_reported(computed):
    rehearsal.rehearse(LESSON)
    rows, seen = train(33)
    assert computed == [*range(1, 11), 20, 30, 33]
    assert [row["step"] for row in rows] == seen == list(range(1, 34))
    assert [row["step"] for row in rows if "validation_loss" in row] == [7, 14, 21, 28, 33]
    assert rows[14]["loss"] == rows[9]["loss"] != rows[20]["loss"]


def test_some_lessons_are_trained_whole(computed, monkeypatch):
    assert {name.removesuffix(".ipynb") for name in green.lessons()} >= rehearsal.WHOLE
    monkeypatch.setattr(rehearsal, "WHOLE", frozenset({"07_how_deep"}))
    rehearsal.rehearse(LESSON)
    train(15)
    assert computed == list(range(1, 16))
