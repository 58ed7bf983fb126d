"""The result of a check: right or not yet, and a sentence that names the misconception."""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from attnlab.core.markup import escape

P = ParamSpec("P")
CheckType = TypeVar("CheckType", bound=Callable[..., Any])
Function = Callable[..., object]

# Blue and vermilion of Okabe and Ito; mark and word are clear without colour. The text keeps the
# page's own colour, so that it is readable on light and dark pages.
_LOOK = {True: ("✓", "Right.", "#0072B2"), False: ("✗", "Not yet.", "#D55E00")}


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of a check: true if the solution is right; `message` says why or why not."""

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
    """A sentence for the learner; `returns_verdict` turns it into a verdict."""


def returns_verdict(
    check: Callable[Concatenate[Function, P], str],
) -> Callable[Concatenate[Function, P], Verdict]:
    """The check, returning a `Verdict` of the text it returns or of the `Mistake` it raises."""

    @functools.wraps(check)
    def verdict(function: Function, /, *args: P.args, **kwargs: P.kwargs) -> Verdict:
        try:
            require_function(function, check.__name__)
            return Verdict(True, check(function, *args, **kwargs))
        except Mistake as mistake:
            return Verdict(False, str(mistake))

    verdict.__annotations__ = {**check.__annotations__, "return": Verdict}
    return verdict


def says(mistakes: Iterable[tuple[str, object]]) -> Callable[[CheckType], CheckType]:
    """The check, whose ``sentences`` are those of the known mistakes that it names."""
    sentences = tuple(dict.fromkeys(sentence for sentence, _ in mistakes))

    def with_sentences(check: CheckType) -> CheckType:
        setattr(check, "sentences", sentences)  # noqa: B010 (a function has no such attribute)
        return check

    return with_sentences


def require_function(function: object, check: str) -> None:
    """A `Mistake` where the check of that name was given something that cannot be called."""
    if not callable(function):
        raise Mistake(
            f"`{check}` takes the function itself and calls it; it was given "
            f"{type_name(function)}. Write the name of your function without parentheses after it."
        )


def type_name(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
