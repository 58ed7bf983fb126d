"""Facts that ship with Python, as tables: statuses, exceptions, keywords, characters, time zones.

A fact is a row of cells, and a cell is words that one space parts: `not found`, `404`, `os error`.
In some columns no value stands twice: these name a row. The facts are those of the Python that
runs, so another version has a few more or fewer.
"""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple

from attnlab.core.suggest import check_choice, choose
from attnlab.tasks import SPLITS

MOST_WORDS = 6  # of a cell
_VALIDATION_SHARE = 4  # one fact in four belongs to validation
_Row = tuple[str, ...]


class Facts(NamedTuple):
    """The table of one subject, and how one asks for what it holds."""

    header: tuple[str, ...]
    rows: tuple[_Row, ...]
    names: tuple[str, ...]
    """The columns no value of which stands in two rows."""
    sizes: tuple[str, ...]
    """The columns of numbers that can be compared."""
    phrases: Mapping[str, tuple[str, ...]]
    """For each column ways to ask for it, `{}` in place of what names the row."""


def subjects() -> tuple[str, ...]:
    """What there are facts about."""
    return tuple(_SUBJECTS)


@lru_cache(maxsize=8)
def facts(subject: str) -> Facts:
    """All facts about a subject."""
    found = choose("subject", subject, _SUBJECTS)()
    seen: dict[str, set[str]] = {name: set() for name in found.names}
    kept = []
    for row in found.rows:  # the first of those with a name in common
        named = {name: row[found.header.index(name)] for name in found.names}
        short = all(0 < len(cell.split()) <= MOST_WORDS for cell in row)
        if short and not any(value in seen[name] for name, value in named.items()):
            kept.append(row)
            for name, value in named.items():
                seen[name].add(value)
    return found._replace(rows=tuple(kept))


def number(cell: str) -> int:
    """The number of a cell of digits, in an order that holds for decimal and hexadecimal digits."""
    return int(cell, 16)


@lru_cache(maxsize=16)
def facts_of_split(subject: str, split: str) -> list[_Row]:
    """The rows of a split, in their order; what stands in the first column decides."""
    check_choice("split", split, SPLITS)
    unseen, rows = split == "validation", facts(subject).rows
    return [row for row in rows if (_hashed(row[0]) % _VALIDATION_SHARE == 0) == unseen]


def _hashed(name: str) -> int:
    return sha256(name.encode()).digest()[0]


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


# ---- the subjects

_CLASSES = {1: "informational", 2: "success", 3: "redirection", 4: "client error"}


def _http() -> Facts:
    rows = [
        (str(s.value), _words(s.phrase), _CLASSES.get(s.value // 100, "server error"))
        for s in HTTPStatus
    ]
    return Facts(
        ("code", "phrase", "kind"),
        tuple(rows),
        ("code", "phrase"),
        ("code",),
        {
            "code": ("what is the code of {}", "which number says {}"),
            "phrase": ("what is the phrase of {}", "what does {} mean"),
            "kind": ("of which kind is {}", "what sort of answer is {}"),
        },
    )


def _exceptions() -> Facts:
    rows: list[_Row] = []
    waiting = [BaseException]
    while waiting:
        kind = waiting.pop(0)
        below = [c for c in kind.__subclasses__() if vars(builtins).get(c.__name__) is c]
        below.sort(key=lambda each: each.__name__)
        waiting = [each for each in below if each.__bases__[0] is kind] + waiting
        parent = _camel(kind.__bases__[0].__name__)
        depth = len(kind.__mro__) - 1
        rows.append((_camel(kind.__name__), parent, str(depth), str(len(below))))
    return Facts(
        ("name", "parent", "depth", "children"),
        tuple(rows),
        ("name",),
        ("depth",),
        {
            "parent": ("what is the parent of {}", "from which class inherits {}"),
            "depth": ("what is the depth of {}", "how many ancestors has {}"),
            "children": ("how many children has {}", "how many classes inherit from {}"),
        },
    )


def _camel(name: str) -> str:
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+", name)).lower()


def _keywords() -> Facts:
    hard, soft = (("hard", keyword.kwlist), ("soft", keyword.softkwlist))
    rows = [
        (word, kind, str(len(word)), "yes" if word[0].isupper() else "no")
        for kind, words in (hard, soft)
        for word in words
    ]
    return Facts(
        ("word", "kind", "letters", "capital"),
        tuple(rows),
        ("word",),
        ("letters",),
        {
            "kind": ("of which kind is {}", "is {} hard or soft"),
            "letters": ("how many letters has {}", "how long is {}"),
            "capital": ("does {} begin with a capital", "is {} written with a capital"),
        },
    )


_RANGES = ((0x21, 0x17F), (0x370, 0x4FF), (0x2190, 0x22FF))


def _characters() -> Facts:
    every = (chr(code) for first, last in _RANGES for code in range(first, last + 1))
    rows = [
        (
            _words(unicodedata.name(c, "")),
            unicodedata.category(c),
            unicodedata.bidirectional(c),
            f"{ord(c):04x}",
        )
        for c in every
    ]
    return Facts(
        ("name", "category", "direction", "code"),
        tuple(rows),
        ("name", "code"),
        ("code",),
        {
            "name": ("what is the name of {}", "which character is {}"),
            "category": ("what is the category of {}", "what sort of character is {}"),
            "direction": ("what is the direction of {}", "which way runs {}"),
            "code": ("what is the code of {}", "where in unicode stands {}"),
        },
    )


_AREAS = ("Africa", "America", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")


def _zones() -> Facts:
    import zoneinfo

    found = sorted(name for name in zoneinfo.available_timezones() if name.count("/") == 1)
    rows = []
    for name in found:
        area, city = name.split("/")
        if area in _AREAS:
            zone = zoneinfo.ZoneInfo(name)
            rows.append((_words(city), area.lower(), _offset(zone, 1), _offset(zone, 7)))
    if not rows:
        raise ValueError(
            "this machine has no time zone data: leave 'zones' out of the subjects, or install the "
            "package tzdata"
        )
    return Facts(
        ("city", "area", "january", "july"),
        tuple(rows),
        ("city",),
        (),
        {
            "area": ("in which area is {}", "where lies {}"),
            "january": ("how far from utc is {} in january", "what time has {} in winter"),
            "july": ("how far from utc is {} in july", "what time has {} in summer"),
        },
    )


def _offset(zone: object, month: int) -> str:
    """As in `+5:30`."""
    moment = datetime(2024, month, 1, tzinfo=UTC).astimezone(zone)  # type: ignore[arg-type]
    minutes = int(moment.utcoffset().total_seconds()) // 60  # type: ignore[union-attr]
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours}" + (f":{rest:02}" if rest else "")


_SUBJECTS: Mapping[str, Callable[[], Facts]] = {
    "http": _http,
    "exceptions": _exceptions,
    "keywords": _keywords,
    "characters": _characters,
    "zones": _zones,
}
