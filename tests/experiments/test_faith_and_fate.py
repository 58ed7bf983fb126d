"""Answers of many steps: the control, what a model states, and its scores."""

import pytest
import torch

from attnlab.experiments import faith_and_fate as fate
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.computation import KINDS
from attnlab.tasks import UNSCORED
from attnlab.tasks.products import Products
from attnlab.tasks.spaced_sums import SpacedSums


def test_a_filler_is_as_long_as_the_scratchpad_and_says_nothing():
    filler, scratchpad = fate.TASKS["sums, filler"], fate.TASKS["sums, scratchpad"]
    questions = scratchpad.questions("validation", 7, seed=0)
    one, other = filler.of(questions), scratchpad.of(questions)
    assert one.targets.shape == other.targets.shape
    for row, question in enumerate(questions):
        n = len(question)
        said = one.targets[row][one.targets[row] != UNSCORED]
        assert filler.tokens(said[:n]) == ["="] * n
        assert torch.equal(said[n:], other.targets[row][other.targets[row] != UNSCORED][n:])


def planted(monkeypatch, change):
    """``generate`` writes right answers, changed by ``change(row, text)``."""

    def generate(task, asked, steps, **_):
        found = []
        for row, each in enumerate(asked):
            question = [each_one - 5 for each_one in each[:-1].tolist()]
            text = task.of([question]).targets[0]
            found.append(torch.cat([each, change(row, text[text != UNSCORED].clone())]))
        assert all(len(each) == asked.shape[1] + steps for each in found)
        return torch.stack(found)

    monkeypatch.setattr(fate, "generate", generate)


def test_scores_of_what_is_planted(monkeypatch):
    task = SpacedSums(4, 4, scratchpad=True)
    questions = [(3, -1, 5, 2), (1, 1, 1, 1), (5, 0, 0, 5), (2, 2, 2, 2)]
    planted(monkeypatch, lambda row, text: text)
    found = fate.scored(task, task, questions)
    assert found == {"right": 100, **dict.fromkeys(KINDS, 0), "correct": 100}

    def broken(row, text):
        text[-1] = task.names.index("=") if row == 2 else text[-1]
        return text

    planted(monkeypatch, broken)
    found = fate.scored(task, task, questions)
    assert found["right"] == 75
    assert found["local"] == pytest.approx(100 / 32, abs=0.01)
    assert found["correct"] == pytest.approx(100 * 31 / 32, abs=0.01)


def test_a_model_is_asked_from_the_question_alone():
    task = Products()
    model = TinyTransformer(**{**task.model_options(), "dim": 8, "heads": 2, "layers": 1})
    stated = fate.written(model, task, [(1, 2, 3, 4), (9, 9, 9, 9)])
    assert [set(each) for each in stated] == [{f"digit {place}" for place in range(4)}] * 2
    found = fate.scored(model, task, [(1, 2, 3, 4)])
    assert set(found) == {"right", *(f"digit {place} right" for place in range(4))}


def test_all_forms_are_asked_the_same_lists():
    for n in fate.LENGTHS:
        kinds = [of(n, n, scratchpad=pad) for of, pad in fate.FORMS.values()]
        first, *others = (fate.held_out(kind, 11) for kind in kinds)
        assert all(each == first for each in others)
        assert {len(each) for each in first} == {n}
    short = SpacedSums(*fate.TRAINED)
    trained = {tuple(q) for seed in range(40) for q in short.questions("train", 64, seed)}
    assert not trained & {tuple(q) for q in fate.held_out(SpacedSums(5, 5))}
