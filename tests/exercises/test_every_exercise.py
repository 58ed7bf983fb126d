"""What holds for every exercise that is data: each known mistake gets its own sentence, what is
wrong everywhere is named everywhere, and a solution of another kind is among the right ones.

Those solutions stand beside the tests of each lesson, in lists called ``RIGHT``; ``frame`` tries
each in several styles.
"""

import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attnlab import exercises
from attnlab.exercises.exercise import Exercise

EXERCISES = {
    name: check
    for name, check in ((name, getattr(exercises, name)) for name in exercises.__all__)
    if isinstance(check, Exercise)
}
every_exercise = pytest.mark.parametrize("check", EXERCISES.values(), ids=EXERCISES)


def test_every_exercise_has_a_solution_of_another_kind() -> None:
    pages = [importlib.import_module(f"tests.exercises.{p.stem}") for p in _pages()]
    lists = [page.RIGHT for page in pages if isinstance(getattr(page, "RIGHT", None), list)]
    solved = {check for check, _ in itertools.chain(*lists)}
    assert [name for name, check in EXERCISES.items() if check not in solved] == []


def _pages() -> list[Path]:
    return sorted(set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)})


@every_exercise
def test_each_mistake_gets_its_own_sentence(check: Exercise) -> None:
    assert check.known_mistakes
    for sentence, mistaken in check.known_mistakes:
        verdict = check(mistaken)
        assert not verdict.right, sentence
        assert verdict.message.startswith(sentence), verdict.message


def test_sentences_are_told_apart() -> None:
    """No sentence of an exercise is the beginning of another one of it."""
    for name, check in EXERCISES.items():
        for one, other in itertools.permutations(check.sentences, 2):
            assert not other.startswith(one), f"{name}: {one}"


# ---- what is wrong in any exercise


def changed(check: Exercise, change: Callable[[Tensor], object]) -> Callable[..., object]:
    """The right formula, with something done to its result."""
    return lambda *given: change(torch.as_tensor(check.right(*given)).clone())


def is_number(x: object) -> bool:
    return isinstance(x, Tensor) and x.dtype != torch.bool


def in_place(check: Exercise) -> Callable[..., object]:
    def solution(*given: object) -> Tensor:
        out = torch.as_tensor(check.right(*given)).clone()
        for x in given:
            if is_number(x):
                x += 1
        return out

    return solution


def raising(*given: object) -> None:
    raise KeyError("a word that no message has")


def generic(check: Exercise) -> Iterator[tuple[Callable[..., object], str]]:
    """Wrong solutions of any exercise, with words of the message."""
    case = next(iter(check.cases()))
    right = torch.as_tensor(check.right(*case.values()))
    yield lambda *given: None, "gave None"
    yield raising, "a word that no message has"
    yield lambda *given: "text", "gave a str"
    yield changed(check, lambda y: [y, y]), "gave a list of length 2"
    yield changed(check, lambda y: y[None]), "Wrong shape"
    yield changed(check, lambda y: y.double() + torch.randn(())), "gave different results"
    if right.is_floating_point():
        yield changed(check, lambda y: y.bfloat16()), "keeps two or three digits"
    if any(map(is_number, case.values())):
        yield in_place(check), "changed in place"
    if right.ndim > 1 and len(set(right.shape)) > 1:
        yield changed(check, lambda y: y.movedim(0, -1)), "the axes are"


@every_exercise
def test_what_is_wrong_anywhere_is_named(check: Exercise) -> None:
    for solution, words in generic(check):
        verdict = check(solution)
        assert not verdict.right, words
        assert words in verdict.message or verdict.message in check.sentences, verdict.message
