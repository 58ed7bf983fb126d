"""The experiment `mixtures`: its questions, and what its stored rows say."""

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
    """The rate with most right answers."""
    rows = stored(FILE, "mixtures")

    def worth(rate):
        return sum(rows[f"{name}, rate {rate:g}; {task} right; to choose"] for task in TASKS)

    return max(mixtures.TRIED, key=worth)


def test_each_arm_has_as_many_rows_of_each_task_as_it_says() -> None:
    asked = {"R = 0": 8, "R = 1": 4, "R = 1 more": 8, "R = 2": 8 / 3, "R = 4": 8 / 5, "R = ∞": 0}
    for name, rows in asked.items():
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
    rows = stored(FILE, "mixtures")
    for name in ("R = 0", "R = 1"):
        assert chosen(name) == mixtures.RATE
        start = f"{name}, rate {mixtures.RATE:g}; agreement right after tuning at"
        found = {rate: rows[f"{start} {rate:g}; to choose"] for rate in mixtures.TRIED_TUNING}
        assert max(found, key=found.__getitem__) == mixtures.TUNING


def test_what_the_stored_rows_say_of_the_four_tasks() -> None:
    """Fewer rows cost points in two tasks, text does not."""
    means = {
        (arm, task): sum(of_seeds(arm, f"{task} right")) / 3
        for arm in ("R = 0", "R = 1", "R = 1 more")
        for task in TASKS
    }
    for task in TASKS:
        assert abs(means["R = 1 more", task] - means["R = 0", task]) < 2
    assert 9 < means["R = 0", "selective_copying"] - means["R = 1", "selective_copying"] < 13
    assert 3 < means["R = 0", "number_words"] - means["R = 1", "number_words"] < 6


def test_what_they_say_of_models_of_one_task() -> None:
    """The shared model is as good, within the mean of the seeds."""
    for task in TASKS:
        shared, own = (of_seeds(arm, f"{task} right") for arm in ("R = 0", f"{task} alone"))
        assert abs(sum(shared) - sum(own)) / 3 < 2


def test_what_they_say_of_names_that_were_never_needed() -> None:
    assert max(of_seeds("R = 0", "digits, backwards right")) == 0
    words = of_seeds("R = 0", "number under reversing, in words right")
    assert min(words) < 1
    assert max(words) > 80


def test_what_they_say_of_a_fifth_task() -> None:
    """Text with tasks is above 90 % in every seed, no other start is; of lists those that begin
    with text alone learn nothing."""
    for arm in ("R = 1", "R = 1 more"):
        assert min(of_seeds(arm, "agreement right, step 200")) > 94
        assert min(of_seeds(arm, "agreement right, step 100")) > 91
    for arm in ("R = 0", "R = ∞", "untrained"):
        assert min(of_seeds(arm, "agreement right, step 200")) < 85
    assert max(of_seeds("R = 0", "agreement right, step 100")) < 89
    assert max(of_seeds("R = ∞", "copying right, step 200")) == 0
    assert min(of_seeds("untrained", "copying right, step 200")) == 100


def test_what_they_say_of_more_text() -> None:
    """The tasks fall with their rows; agreement stays above 90 % as long as there are any."""
    right = {
        arm: sum(sum(of_seeds(arm, f"{task} right")) for task in TASKS) / 12
        for arm in ("R = 0", "R = 1", "R = 2", "R = 4", "R = ∞")
    }
    assert sorted(right.values(), reverse=True) == [*right.values()]
    assert right["R = 0"] > 98
    assert 20 < right["R = 4"] < 25
    for task in TASKS:
        assert max(of_seeds("R = 4", f"{task} right")) < 50
    for arm in ("R = 2", "R = 4"):
        assert min(of_seeds(arm, "agreement right, step 200")) > 90
    assert max(of_seeds("R = ∞", "agreement right, step 200")) < 80
