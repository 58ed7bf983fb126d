"""What holds for every exercise that is data: each known mistake gets its own sentence, what is
wrong everywhere is named everywhere, and a solution of another kind is among the right ones.

Those solutions stand beside the tests of each lesson; ``frame`` tries each in several styles.
"""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab import exercises
from attnlab.exercises.attempt import Arguments
from attnlab.exercises.exercise import FunctionExercise
from attnlab.exercises.observed import ObservedExercise
from tests.exercises import frame

EVERY = [getattr(exercises, name) for name in exercises.__all__]
EXERCISES = [check for check in EVERY if isinstance(check, FunctionExercise | ObservedExercise)]
CALLED = [check for check in EXERCISES if isinstance(check, FunctionExercise)]


def each(checks: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)


def test_every_check_says_what_it_can_say() -> None:
    """Sentences are a field, also of those checks that are functions."""
    silent = {exercises.Verdict, exercises.check_number}
    assert [x for x in EVERY if x not in silent and not getattr(x, "sentences", ())] == []


def test_every_exercise_has_a_solution_of_another_kind() -> None:
    for page in _pages():
        importlib.import_module(f"tests.exercises.{page.stem}")
    assert [check for check in EXERCISES if check not in frame.SOLVED] == []


def _pages() -> list[Path]:
    return sorted(set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)})


@each(EXERCISES)
def test_each_mistake_gets_its_own_sentence(check: Any) -> None:
    assert check.known_mistakes
    for sentence, mistaken in check.known_mistakes:
        verdict = check(mistaken)
        assert not verdict.right, sentence
        said, _, more = verdict.message.partition(sentence)
        assert not said, verdict.message
        assert not more or " raised " in more, verdict.message


# ---- what is wrong in any exercise


def first_result(check: FunctionExercise) -> tuple[Arguments, object]:
    case = next(iter(check.cases()))
    return case, check.right(*case.values())


def changed(check: FunctionExercise, change: Callable[[Any], object]) -> Callable[..., object]:
    """The right formula, with something done to its result."""

    def solution(*given: object) -> object:
        found = check.right(*given)
        if isinstance(found, tuple):
            return change(tuple(part.clone() for part in found))
        return change(torch.as_tensor(found).clone())

    return solution


def is_number(x: object) -> bool:
    return isinstance(x, Tensor) and x.dtype != torch.bool


def in_place(check: FunctionExercise) -> Callable[..., object]:
    right = changed(check, lambda y: y)

    def solution(*given: Any) -> object:
        out = right(*given)
        for x in filter(is_number, given):
            x += 1
        return out

    return solution


def raising(*given: object) -> None:
    raise KeyError("a word that no message has")


Wrong = Iterator[tuple[Callable[..., object], str]]


def generic(check: FunctionExercise) -> Wrong:
    """Wrong solutions of any exercise, with words of the message."""
    case, right = first_result(check)
    yield lambda *given: None, "gave None"
    yield raising, "a word that no message has"
    yield lambda *given: "text", "gave a str"
    if any(map(is_number, case.values())):
        yield in_place(check), "changed in place"
    yield from _of_parts(check) if isinstance(right, tuple) else _of_one(check, right)


def _of_parts(check: FunctionExercise) -> Wrong:
    yield changed(check, lambda parts: parts[0]), "gave one tensor"
    yield changed(check, lambda parts: (*parts, parts[0])), "values; it should give"
    yield changed(check, lambda parts: (parts[0][None], *parts[1:])), "Wrong shape"


def _of_one(check: FunctionExercise, found: object) -> Wrong:
    right = torch.as_tensor(found)
    yield changed(check, lambda y: [y, y]), "gave a list of length 2"
    yield changed(check, lambda y: y[None]), "Wrong shape"
    yield changed(check, lambda y: y.double() + torch.randn(())), "gave different results"
    if right.is_floating_point():
        yield changed(check, lambda y: y.bfloat16()), "keeps two or three digits"
    if right.ndim > 1 and len(set(right.shape)) > 1:
        yield changed(check, lambda y: y.movedim(0, -1)), "the axes are"


@each(CALLED)
def test_what_is_wrong_anywhere_is_named(check: FunctionExercise) -> None:
    for solution, words in generic(check):
        verdict = check(solution)
        if words == "changed in place" and check.in_place:
            assert verdict.right, verdict.message
        else:
            assert not verdict.right, words
        assert words in verdict.message or verdict.message in check.sentences, verdict.message


@each(sorted(set(EXERCISES) - set(CALLED), key=lambda check: check.__name__))
def test_an_answer_of_another_kind_is_refused(check: ObservedExercise) -> None:
    assert not check(lambda *given: None).right
    assert "a word that no message has" in check(raising).message
