"""What a check answers: right or not yet, and a sentence that names the misconception."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Concatenate, ParamSpec

P = ParamSpec("P")
Function = Callable[..., object]

# Blue and vermilion of Okabe and Ito; the mark and the word say the same without colour. Text keeps
# the page's own colour, so that it is readable on a light page and on a dark one.
_LOOK = {True: ("✓", "Right.", "#0072B2"), False: ("✗", "Not yet.", "#D55E00")}


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer of a check: true where the solution is right; `message` says why or why not."""

    right: bool
    message: str

    def __bool__(self) -> bool:
        return self.right

    def __str__(self) -> str:
        mark, word, _ = _LOOK[self.right]
        return f"{mark} {word} {self.message}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        mark, word, colour = _LOOK[self.right]
        border = f"0.4em {'solid' if self.right else 'double'} {colour}"
        style = f"border-left:{border};overflow-wrap:anywhere"
        words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self.message))
        return (
            f'<div role="note" style="{style};padding:0.3em 0.8em;max-width:46em">'
            f'<strong><span aria-hidden="true">{mark}</span> {word}</strong> {words}</div>'
        )


class Mistake(Exception):
    """A sentence for the learner, on its way to becoming a verdict."""


def diagnosed(
    check: Callable[Concatenate[Function, P], str],
) -> Callable[Concatenate[Function, P], Verdict]:
    """A check that praises in words, or raises a `Mistake`, as one that returns a `Verdict`."""

    @functools.wraps(check)
    def verdict(function: Function, /, *args: P.args, **kwargs: P.kwargs) -> Verdict:
        try:
            _callable(function, check.__name__)
            return Verdict(True, check(function, *args, **kwargs))
        except Mistake as mistake:
            return Verdict(False, str(mistake))

    verdict.__annotations__ = {**check.__annotations__, "return": Verdict}
    return verdict


def _callable(function: object, check: str) -> None:
    if not callable(function):
        raise Mistake(
            f"`{check}` takes the function itself and calls it; it was given "
            f"{kind_of(function)}. Write the name of your function without parentheses behind it."
        )


def kind_of(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
