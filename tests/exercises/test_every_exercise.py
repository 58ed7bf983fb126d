"""What holds for every exercise that is data: what is right is right however it is computed, each
known mistake gets its own sentence, and what is wrong everywhere is named everywhere."""

import itertools
from collections.abc import Callable, Iterator

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


def is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def changed(check: Exercise, change: Callable[[Tensor], object]) -> Callable[..., object]:
    """The right formula, with something done to its result."""
    return lambda *given: change(torch.as_tensor(check.right(*given)))


def in_single(check: Exercise) -> Callable[..., object]:
    """The right formula in float32, from its arguments on where it allows that."""

    def single(*given):
        try:
            return check.right(*(x.float() if is_real(x) else x for x in given))
        except RuntimeError:  # it has float64 numbers of its own
            return check.right(*given).float()

    return single


STYLES = {
    "float64": lambda check: check.right,
    "float32": in_single,
    "NumPy": lambda check: changed(check, lambda y: y.numpy() if y.ndim else y.item()),
}


@every_exercise
@pytest.mark.parametrize("style", STYLES)
def test_right_is_right_in_every_style(check, style):
    verdict = check(STYLES[style](check))
    assert verdict.right, verdict.message


@every_exercise
def test_each_mistake_gets_its_own_sentence(check):
    assert check.known_mistakes
    for sentence, mistaken in check.known_mistakes:
        verdict = check(mistaken)
        assert not verdict.right, sentence
        assert verdict.message.startswith(sentence), verdict.message


def in_place(check: Exercise) -> Callable[..., object]:
    def solution(*given):
        out = check.right(*given)
        for x in given:
            if is_real(x):
                x += 1
        return out

    return solution


def in_another_order(check: Exercise) -> Callable[..., object]:
    return changed(check, lambda y: y.movedim(0, -1))


def raising(*given):
    raise KeyError("a word that no message has")


def one_random(y: Tensor) -> Tensor:
    return y.double() + torch.randn(())


def generic(check: Exercise) -> Iterator[tuple[Callable[..., object], str]]:
    """What is wrong in any exercise, with words of the message."""
    case = next(iter(check.cases()))
    right = torch.as_tensor(check.right(*case.values()))
    yield lambda *given: None, "gave None"
    yield raising, "a word that no message has"
    yield lambda *given: "text", "gave a str"
    yield changed(check, lambda y: [y, y]), "gave a list of length 2"
    yield changed(check, lambda y: y[None]), "Wrong shape"
    yield changed(check, one_random), "gave different results"
    if right.is_floating_point():
        yield changed(check, lambda y: y.bfloat16()), "keeps two or three digits"
    if any(map(is_real, case.values())):
        yield in_place(check), "changed in place"
    if right.ndim > 1 and len(set(right.shape)) > 1:
        yield in_another_order(check), "the axes are"


@every_exercise
def test_what_is_wrong_anywhere_is_named(check):
    for solution, words in generic(check):
        verdict = check(solution)
        assert not verdict.right, words
        assert words in verdict.message, verdict.message


def test_sentences_are_told_apart() -> None:
    """No sentence of an exercise is the beginning of another one of it."""
    for name, check in EXERCISES.items():
        for one, other in itertools.permutations(check.sentences, 2):
            assert not other.startswith(one), f"{name}: {one}"
