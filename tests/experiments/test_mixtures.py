"""The experiment `mixtures`: its questions, and what its stored rows say."""

import math

import pytest
import torch

from attnlab.experiments import mixtures, stored
from attnlab.objectives.batches import UNSCORED

FILE = "65_mixtures.json"
TASKS = [each.name for each in mixtures.TASKS]


def of_seeds(arm, what):
    rows = stored(FILE, "mixtures")
    return [rows[f"{arm}; {what}; seed {seed}"] for seed in mixtures.SEEDS]


def chosen(name):
    """The rate with most right answers, of text alone with the least loss."""
    rows = stored(FILE, "mixtures")

    def worth(rate):
        start = f"{name}, rate {rate:g}; "
        if name == "R = ∞":
            return -rows[f"{start}loss of restored text; seed 3"]
        return sum(rows.get(f"{start}{task} right; seed 3", 0.0) for task in TASKS)

    return max(mixtures.TRIED, key=worth)


def test_each_arm_has_as_many_rows_of_each_task_as_it_says() -> None:
    for name, rows in (("R = 0", 8), ("R = 1", 4), ("R = 1 more", 8), ("R = ∞", 0)):
        arm = mixtures.TOGETHER.arms[name]
        for task in mixtures.TASKS:
            assert arm.training["batch_size"] * arm.task.rates[task.name] == pytest.approx(rows)
    for task in mixtures.TASKS:
        alone = mixtures.APART.arms[f"{task.name} alone"]
        assert alone.training["batch_size"] * alone.task.rates[task.name] == 8


def test_an_answer_is_right_if_all_its_words_are() -> None:
    """A model that answers all but one word of one row."""
    batch = mixtures.unseen(mixtures.TASKS[1], size=7)
    asked = mixtures.OBJECTIVE.prepare(batch)
    wanted = asked.targets.clamp(min=0)

    class Says(torch.nn.Module):
        def forward(self, tokens, **source):
            said = wanted.clone()
            said[3, 2] += 1
            return torch.nn.functional.one_hot(said, 300).double()

    right = mixtures.whole_answers(Says(), batch)
    assert right.tolist() == [row != 3 for row in range(7)]


def test_questions_under_another_name() -> None:
    digits = mixtures.of_words("0123456789", size=5)
    batch = mixtures.asked("reversing", digits, digits.flip(1))
    assert mixtures.words_of(batch.inputs[0, :1]) == "reversing:"
    assert batch.targets[0][batch.targets[0] != UNSCORED].tolist() == digits[0].flip(0).tolist()
    own, other = mixtures.unseen(mixtures.TASKS[0]), mixtures.renamed(mixtures.TASKS[0], "sorting")
    assert torch.equal(own.inputs[:, 1:], other.inputs[:, 1:])
    assert {mixtures.words_of(row[:1]) for row in other.inputs} == {"sorting:"}


def test_rows_that_are_tuned_on_are_few_and_none_of_the_questions() -> None:
    problem = mixtures.mixture(mixtures.OTHERS[1])
    labelled = mixtures.Labelled(problem, rows=11)
    found = {tuple(row.tolist()) for row in labelled.batch("train", 300, 0).inputs}
    assert len(found) <= 11
    width = mixtures.unseen(mixtures.OTHERS[1]).inputs.shape[1]
    asked = {tuple(row.tolist()) for row in mixtures.unseen(mixtures.OTHERS[1]).inputs}
    padded = {(*row, *[0] * (width - len(row)))[:width] for row in found}
    assert not padded & asked


def test_the_rates_are_those_that_the_stored_rows_choose() -> None:
    assert all(chosen(name) == mixtures.RATE for name in ("R = 0", "R = 1"))
    assert {name: chosen(name) for name in mixtures.ALONE} == mixtures.RATES_ALONE
    assert math.isfinite(chosen("R = ∞"))
