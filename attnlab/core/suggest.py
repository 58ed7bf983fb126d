"""Suggestions for errors: the known names nearest to a mistyped one."""

import difflib
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


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """``table[name]``; a ValueError names ``what`` was asked for and the names there are."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"there is no {what} {name!r}{suggestion(str(name), table)}")
    return table[name]
