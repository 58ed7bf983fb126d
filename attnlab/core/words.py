"""Words for errors: the nearest known name to a mistyped one."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the known names nearest to ``name``, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(known)}"


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """``table[name]``, or a sentence that names ``what`` was asked for and what there is."""
    if name not in table:
        raise ValueError(f"there is no {what} {name!r}{nearest(str(name), table)}")
    return table[name]
