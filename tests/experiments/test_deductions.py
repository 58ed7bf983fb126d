"""Logic grids in three forms: the control, the scores of what is planted, and the guesses."""

import pytest
import torch

from attnlab.experiments import deductions, faith_and_fate
from attnlab.structures.computation import KINDS
from attnlab.tasks import UNSCORED
from attnlab.tasks.logic_grids import LogicGrids, clues, fits

ASKED = deductions.held_out(LogicGrids(scratchpad=True), 23)


def planted(monkeypatch, change=lambda text: text):
    """``generate`` writes right answers, changed by ``change(text)``."""
    told, names = clues(2), LogicGrids.names

    def generate(task, asked, steps, **_):
        found = []
        for row in asked:
            words = [names[token] for token in row[:-1].tolist()]
            question = [told.index(tuple(words[at : at + 3])) for at in range(0, len(words), 3)]
            text = task.of([question]).targets[0]
            found.append(torch.cat([row, change(text[text != UNSCORED].clone())]))
        assert all(len(each) == asked.shape[1] + steps for each in found)
        return torch.stack(found)

    monkeypatch.setattr(faith_and_fate, "generate", generate)


def test_puzzles_of_all_lengths_are_stated_in_their_order(monkeypatch):
    task = LogicGrids(scratchpad=True)
    assert len({*map(len, ASKED)}) > 1
    planted(monkeypatch)
    for question, said in zip(ASKED, faith_and_fate.written(task, task, ASKED), strict=True):
        assert said == {n: task.computation(question).values[n] for n in said}


def test_scores_of_what_is_planted(monkeypatch):
    task = LogicGrids(scratchpad=True)
    planted(monkeypatch)
    found = deductions.scored(task, task, ASKED)
    names = ("right", "shallow, right", "deep, right", "cells right", "correct")
    assert found == {**dict.fromkeys(KINDS, 0), **dict.fromkeys(names, 100)}

    def broken(text):
        text[-1] = task.names.index("=")
        return text

    planted(monkeypatch, broken)
    found = deductions.scored(task, task, ASKED)
    assert found["right"] == found["shallow, right"] == found["deep, right"] == 0
    assert found["cells right"] == pytest.approx(100 * 5 / 6, abs=0.01)
    assert found["local"] == pytest.approx(100 / 12, abs=0.01)


def test_shallow_and_deep_puzzles_are_counted_apart(monkeypatch):
    task = LogicGrids()
    planted(monkeypatch)
    depths = [task.computation(each).depth for each in ASKED]
    assert min(depths) <= deductions.SHALLOW < max(depths)
    wrong = {i for i, depth in enumerate(depths) if depth > deductions.SHALLOW}
    stated = faith_and_fate.written(task, task, ASKED)
    for i in wrong:
        stated[i] = dict.fromkeys(stated[i])
    monkeypatch.setattr(deductions, "written", lambda *_: stated)
    found = deductions.scored(task, task, ASKED)
    assert (found["shallow, right"], found["deep, right"]) == (100, 0)
    assert found["right"] == pytest.approx(100 * (1 - len(wrong) / len(ASKED)), abs=0.01)


def test_a_filler_is_as_long_as_the_scratchpad():
    filler, scratchpad = (deductions.FORMS[name] for name in ("filler", "scratchpad"))
    assert deductions.held_out(filler, 23) == ASKED
    one, other = filler.of(ASKED), scratchpad.of(ASKED)
    assert one.targets.shape == other.targets.shape
    for row in range(len(ASKED)):
        said, wanted = (each.targets[row][each.targets[row] != UNSCORED] for each in (one, other))
        assert filler.tokens(said[:-6]) == ["="] * (len(wanted) - 6)
        assert torch.equal(said[-6:], wanted[-6:])


def test_guesses_by_clues_about_one_item():
    told = clues(2)
    number = told.index(("red", "at", "1"))
    assert deductions.left((number,)) == 12
    assert deductions.left((number, told.index(("red", "with", "cat")))) == 12
    assert deductions.left((number, told.index(("cat", "not-at", "1")))) == 8
    every = deductions.held_out(LogicGrids())
    assert all(fits(2)[list(each)].all(0).sum() == 1 <= deductions.left(each) for each in every)
    deep = [each for each in every if not deductions.is_shallow(LogicGrids().computation(each))]
    whole, parts = (
        deductions.guessed(False),
        [deductions.guessed(False, of) for of in (True, False)],
    )
    assert min(parts) < whole < max(parts)
    share = len(deep) / len(every)
    assert whole == pytest.approx(parts[0] * (1 - share) + parts[1] * share, abs=0.02)
    assert min(parts) > 100 / 36
