"""An exercise whose answer is a function that gives several tensors: an output and a state."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

from attnlab.exercises.attempt import (
    Answer,
    Arguments,
    KnownMistake,
    Parts,
    difference,
    expect_tensors,
    result_of,
    run,
    same,
)
from attnlab.exercises.exercise import Formula, FunctionExercise, Mistakes, whole
from attnlab.exercises.verdict import Function, Mistake


@dataclass(frozen=True, eq=False, repr=False)
class PartsExercise(FunctionExercise):
    """An exercise whose answer gives a tuple of tensors.

    `axes` maps the names of the parts to those of their axes. `mistakes` are formulas of all parts,
    looked at first; those in `of_part` are looked at in their order where that part is wrong, and
    give the part alone or all of them.
    """

    _: KW_ONLY
    axes: Mapping[str, str]
    mistakes: Mistakes = field(default_factory=dict)
    of_part: Mapping[str, Mistakes] = field(default_factory=dict)

    @cached_property
    def known_mistakes(self) -> tuple[KnownMistake, ...]:
        known = [(text, whole(formula, self.right)) for formula, text in self.mistakes.items()]
        for place, name in enumerate(self.axes):
            known += [(text, self._with_part(place, part)) for text, part in self._of(name)]
        return tuple(known)

    def _of(self, name: str) -> list[KnownMistake]:
        place, listed = list(self.axes).index(name), self.of_part.get(name, {})
        return [
            (text, _part(place, whole(formula, self.right))) for formula, text in listed.items()
        ]

    def _with_part(self, place: int, part: Formula) -> Formula:
        """The right formula, with one of its parts replaced."""

        def replaced(*given: object) -> object:
            parts = list(self._right(*given))
            parts[place] = part(*given)  # type: ignore[call-overload]
            return tuple(parts)

        return replaced

    @property
    def _right(self) -> Callable[..., Parts]:
        return self.right  # type: ignore[return-value]

    def require(self, function: Function, given: Arguments) -> Answer:
        answer, truth = run(function, given), self._right(*given.values())
        parts = expect_tensors(answer, tuple(self.axes), tuple(self.axes.values()), truth)
        wrong = [
            (name, part, right)
            for name, part, right in zip(self.axes, parts, truth, strict=True)
            if not same(part, right)
        ]
        if not wrong:
            return answer
        for formula, text in self.mistakes.items():
            if same(parts, result_of(whole(formula, self.right), given)):
                raise Mistake(text)
        found = {name: part for name, part, _ in wrong}
        for name in filter(found.__contains__, self.of_part):
            for text, mistaken in self._of(name):
                if same(found[name], result_of(mistaken, given)):
                    raise Mistake(text)
        unknown = (difference(part, right, f"`{name}`") for name, part, right in wrong)
        raise Mistake(self.explain(function, given) or " ".join(unknown))


def _part(place: int, formula: Formula) -> Formula:
    def part(*given: object) -> object:
        found = formula(*given)
        return found[place] if isinstance(found, tuple) else found

    return part
