"""An exercise as data: the right formula, the known mistakes, and the numbers it is called with.

    check_hartley = Exercise(
        "Is it H_n x H_dim with the numbers cos θ + sin θ? `hartley(x)` with `x` (n, dim).",
        right=_hartley,  # (x, *, sign=1, width=True): a mistake changes one part
        cases=drawn(36, x=(7, 5)),
        axes="n dim",
        mistakes={
            but(sign=-1): "The sines are subtracted: it is cos θ + sin θ.",
            but(width=False): "Only the tokens are transformed, the width is not.",
            (lambda x: …): "That is FNet's mixing, which loses a half of its input.",
        },
        praise="Applied twice it gives n · dim times x: nothing is lost.",
    )

The exercise is called with the learner's function and gives a `Verdict`. The function is compared
with ``right`` on each of the cases; where it differs, with each known mistake.
"""

import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any

from attnlab.exercises.attempt import (
    Answer,
    Arguments,
    KnownMistake,
    changed_in_place,
    check_side_effects,
    random_tensors,
    require,
    sizes,
)
from attnlab.exercises.check import Check
from attnlab.exercises.verdict import Function, Mistake, Verdict, require_function

Formula = Callable[..., object]
Cases = Callable[..., Iterable[Arguments]]


@dataclass(frozen=True, eq=False)
class But:
    """The right formula of an exercise, called with other options."""

    options: Mapping[str, Any]

    def of(self, right: Formula) -> Formula:
        return lambda *given: right(*given, **self.options)


def but(**options: Any) -> But:
    """A known mistake: the right formula of the exercise with other ``options``."""
    return But(options)


Mistakes = Mapping[Formula | But, str]  # what is wrong, and the sentence about it


def drawn(seed: int | list[int] = 0, /, **arguments: Any) -> Cases:
    """Cases with random tensors: a tuple is a shape, a list has an entry for each of the cases.

    Everything else is passed on as it is. ``drawn(3, x=(7, 5), k=[1, 2])`` makes two cases from one
    seed, ``drawn([3, 4], x=[(7, 5), (4, 2)])`` two of their own shapes and numbers. Where there is
    no shape all arguments are whole numbers, which a hidden test takes larger (``sizes``).
    """
    lists = [x for x in (seed, *arguments.values()) if isinstance(x, list)]

    def cases() -> Iterable[Arguments]:
        for place in range(len(lists[0]) if lists else 1):
            now = {name: _entry(x, place) for name, x in arguments.items()}
            shapes = {name: x for name, x in now.items() if isinstance(x, tuple)}
            if shapes:
                tensors = random_tensors(*shapes.values(), seed=_entry(seed, place))
                yield now | dict(zip(shapes, tensors, strict=True))
            else:
                yield dict(zip(now, *sizes(tuple(now.values())), strict=True))

    return cases


def _entry(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, list) else value


def whole(formula: Formula | But, right: Formula) -> Formula:
    """A known mistake as a formula of its own."""
    return formula.of(right) if isinstance(formula, But) else formula


@dataclass(frozen=True, eq=False, repr=False)
class FunctionExercise(Check, abc.ABC):
    """An exercise whose answer is a function; calling it with one gives the `Verdict`.

    `question` is the help: what is asked for, the signature, shapes and sizes. The function is
    compared with `right` on each of the `cases`. `then` is called last, with the last case: it
    raises a `Mistake`, or adds to the `praise`. `explain` is asked where no known mistake agrees,
    with the function and the case. With `in_place` a function may change its arguments, as a step
    that updates a state does; the verdict remarks upon it.
    """

    _: KW_ONLY
    right: Formula
    cases: Cases
    praise: str
    explain: Callable[[Function, Arguments], str | None] = lambda function, given: None
    then: Callable[[Function, Arguments], str | None] = lambda function, given: None
    in_place: bool = False

    @property
    @abc.abstractmethod
    def known_mistakes(self) -> tuple[KnownMistake, ...]:
        """Each sentence with its formula, made whole."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it can say of a known mistake, each sentence once."""
        return tuple(dict.fromkeys(sentence for sentence, _ in self.known_mistakes))

    @abc.abstractmethod
    def require(self, function: Function, given: Arguments) -> Answer:
        """The answer of the function on one case if it is right; else a `Mistake`."""

    def remark(self, answer: Answer) -> str:
        """What is added to the praise because of a right answer; or a `Mistake`."""
        if self.in_place and answer.changed:
            return f" One remark: {changed_in_place(answer)}"
        check_side_effects(answer)
        return ""

    def __call__(self, function: Function, /, **options: Any) -> Verdict:
        """Is the function right? `options` go to ``cases``."""
        try:
            require_function(function, self.__name__)
            given: Arguments = {}
            answers = []
            for given in self.cases(**options):
                answers.append(self.require(function, given))
            remark = [self.remark(answer) for answer in answers][-1]
            return Verdict(True, self.praise + (self.then(function, given) or "") + remark)
        except Mistake as mistake:
            return Verdict(False, str(mistake))


@dataclass(frozen=True, eq=False, repr=False)
class Exercise(FunctionExercise):
    """An exercise whose answer is a function that gives one tensor, or a number.

    `axes` names the axes of the result. `mistakes` maps wrong formulas to sentences, as
    `check_number` maps wrong numbers to them; a formula is named that gives what the function
    gave, on all cases rather than on one. Some run only where sizes agree: `alike` are further
    cases on which mistakes are looked for.
    """

    _: KW_ONLY
    axes: str
    mistakes: Mistakes
    alike: Cases = tuple

    @cached_property
    def known_mistakes(self) -> tuple[KnownMistake, ...]:
        return tuple((text, whole(formula, self.right)) for formula, text in self.mistakes.items())

    def require(self, function: Function, given: Arguments) -> Answer:
        return require(
            function,
            given,
            self.right,
            shape=self.axes,
            known_mistakes=self.known_mistakes,
            alike=self.alike,
            others=self.cases,
            explain=partial(self.explain, function, given),
        )
