"""The arguments of a primitive: which values each accepts, and how a menu offers it.

``kind`` is "whole" (an integer), "positions" (a list of integers), "grid" (the sizes of a grid),
"side" ("row" or "column") or "pattern".
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from attnlab.core.integers import check_integer

LARGEST = 2**53 - 1
"""The largest integer that JavaScript also holds exactly; no sequence is that long."""

MOST = 2**22
"""The largest number of positions in a list."""


REQUIRED = object()


@dataclass(frozen=True)
class Argument:
    """One argument: its kind, its smallest value, its default, and what a menu starts with.

    In a pattern's code it is written ``name=value`` if it is ``named``, and left out if it is
    ``optional`` and has its default value. Errors use the phrase ``called``, by default its name.
    """

    kind: str
    at_least: int | None = None
    default: Any = REQUIRED
    start: Any = None
    called: str | None = None
    named: bool = False
    optional: bool = False

    def checked(self, owner: str, name: str, value: Any) -> Any:
        """The validated value; a TypeError or a ValueError where it is not valid."""
        if self.kind == "whole":
            return size(self.called or name, value, at_least=self.at_least)
        if self.kind == "positions":
            return _positions(value)
        if self.kind == "grid":
            return _grid(value)
        return _side(owner, value) if self.kind == "side" else value

    def written(self, value: Any, *, key: bool = False) -> str:
        """The value as code."""
        if self.kind == "pattern":
            return str(value.key if key else value.code)
        if self.kind == "side":
            return f'"{value}"'
        return str(list(value)) if self.kind == "positions" else str(value)


def size(name: str, value: Any, *, at_least: int | None = None) -> int:
    """The validated integer, at most 2^53 - 1 in size."""
    found = check_integer(name, value, at_least=at_least)
    if abs(found) > LARGEST:
        raise ValueError(f"{name} should be at most 2^53 - 1 in size, got {found}")
    return found


def _elements(value: Any) -> list[Any] | None:
    """The elements of a list, a tuple, a range, an array …; None if it is not a list."""
    if getattr(value, "is_meta", False) or getattr(value, "is_sparse", False):
        return None  # a tensor without numbers that could be listed
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | bytes | dict) or not isinstance(value, Collection):
        return None
    if len(value) > MOST:
        raise ValueError(f"a list of positions should have at most {MOST:,}, got {len(value):,}")
    return list(value)


def _positions(value: Any) -> tuple[int, ...]:
    found = _elements(value)
    if found is None:
        raise TypeError(f"positions should be a list such as [0, 5], got {value!r}")
    return tuple(dict.fromkeys(size("a position", p) for p in found))


def _grid(value: Any) -> tuple[int, ...]:
    found = _elements(value)
    if found is None:
        raise TypeError(f"the grid's shape should be its sizes, as in (4, 6), got {value!r}")
    wrong = f"the grid's shape should be positive whole numbers, got {value!r}"
    try:
        sizes = tuple(size("a side of the grid", side, at_least=1) for side in found)
    except TypeError:
        raise TypeError(wrong) from None
    except ValueError:
        raise ValueError(wrong) from None
    if not sizes:
        raise ValueError(wrong)
    return sizes


def _side(owner: str, value: Any) -> str:
    if not isinstance(value, str) or value not in ("row", "column"):
        raise ValueError(f'{owner} are of a "row" or of a "column", got {value!r}')
    return value
