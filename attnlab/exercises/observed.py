"""An exercise whose function is judged by what is observed of it: names, a ratio of times."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

from attnlab.exercises.attempt import KnownMistake
from attnlab.exercises.check import Check
from attnlab.exercises.exercise import Formula, Mistakes, whole
from attnlab.exercises.verdict import Function, Mistake, Verdict, require_function


@dataclass(frozen=True, eq=False, repr=False)
class ObservedExercise(Check):
    """An exercise whose answer is a function of any kind; calling it with one gives the `Verdict`.

    `observe` calls a function and gives what can be compared by ``==``; it raises a `Mistake` where
    the answers are of the wrong kind. `mistakes` maps wrong formulas to sentences. `explain` gets
    what was found and what is right, where no known mistake agrees.
    """

    _: KW_ONLY
    right: Formula
    observe: Callable[[Function], Any]
    mistakes: Mistakes
    explain: Callable[[Any, Any], str]
    praise: str

    @cached_property
    def known_mistakes(self) -> tuple[KnownMistake, ...]:
        return tuple((text, whole(formula, self.right)) for formula, text in self.mistakes.items())

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it can say of a known mistake, each sentence once."""
        return tuple(dict.fromkeys(self.mistakes.values()))

    def __call__(self, function: Function, /) -> Verdict:
        """Is the function right?"""
        try:
            require_function(function, self.__name__)
            found, wanted = self.observe(function), self.observe(self.right)
        except Mistake as mistake:
            return Verdict(False, str(mistake))
        if found == wanted:
            return Verdict(True, self.praise)
        for sentence, mistaken in self.known_mistakes:
            if found == self.observe(mistaken):
                return Verdict(False, sentence)
        return Verdict(False, self.explain(found, wanted))
