"""Suggestions for errors: the known names nearest to a mistyped one."""

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the known names nearest to ``name``, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(known)}"


def check_choice(what: str, name: object, known: Iterable[str]) -> None:
    """Raises ValueError unless the name is known; it names what was given and the choices."""
    known = list(known)
    if not isinstance(name, str) or name not in known:
        end = suggestion(str(name)[:100], known)
        raise ValueError(f"there is no {what} {reprlib.repr(name)}{end}")


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """``table[name]``, or a ValueError that names ``what`` was asked for and the choices."""
    check_choice(what, name, table)
    return table[name]
