"""Checks of arguments that are not arrays: each error names the argument and what was given."""

import math
import numbers
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.core.integers import check_integer


def check_texts(**texts: object) -> None:
    """Titles, quantities and other words must be strings."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"`{name}` should be text, got {_shown(text)}")


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` should be True or False, got {_shown(value)}")


def check_size(name: str, value: object, most: int, what: str) -> int:
    """A whole number from 1 to ``most``; ``what`` names what is counted, for the error."""
    size = check_integer(f"`{name}`", value)
    if not 1 <= size <= most:
        raise ValueError(f"`{name}` should be 1 to {most} {what}, got {size}")
    return size


def check_number(name: str, value: object) -> float:
    """A finite real number."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value):  # type: ignore[arg-type]
        raise TypeError(f"`{name}` should be a finite number, got {_shown(value)}")
    return float(value)  # type: ignore[arg-type]


def check_positive(name: str, value: object) -> float:
    number = check_number(name, value)
    if number <= 0:
        raise ValueError(f"`{name}` should be above 0, got {number:g}")
    return number


def check_mapping(
    name: str, value: object, example: str, *, may_be_empty: bool = False
) -> Mapping[str, Any]:
    """A mapping whose keys are names, with at least one entry."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`{name}` should map names to values, such as {example}, got {_shown(value)}"
        )
    if not value and not may_be_empty:
        raise ValueError(f"`{name}` is empty: give at least one entry, such as {example}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"the names in `{name}` should be text, got {_shown(key)}")
    return value


def check_list(name: str, value: object) -> list[Any]:
    """The items of a list, a tuple, an array …; texts and mappings are refused."""
    if isinstance(value, str | bytes | Mapping) or not _has_items(value):
        advice = "; split it first" if isinstance(value, str) else ""
        raise TypeError(f"`{name}` should be a list, got {_shown(value)}{advice}")
    if isinstance(value, Tensor):
        return _of_tensor(name, value)
    return list(value)  # type: ignore[call-overload]


def _of_tensor(name: str, value: Tensor) -> list[Any]:
    """The items of a tensor whose numbers Python can read."""
    if (
        value.is_meta
        or value.layout != torch.strided
        or (value.itemsize < 2 and value.is_floating_point())
    ):
        kind = f"{value.dtype}, {value.layout}, on {value.device}".replace("torch.", "")
        raise TypeError(f"`{name}` should hold numbers that can be read, got a tensor of {kind}")
    return list(value)


def check_limits(limits: object) -> tuple[float, float]:
    """The ends of an axis."""
    ends = [check_number("limits", end) for end in check_list("limits", limits)]
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ValueError(f"`limits` should be two numbers, the smaller first, got {limits!r}")
    return ends[0], ends[1]


def check_names(name: str, value: object) -> list[str]:
    names = check_list(name, value)
    for one in names:
        if not isinstance(one, str):
            raise TypeError(f"`{name}` should hold texts, got {_shown(one)}")
    return names


def check_grid_names(
    what: str, count: tuple[int, int], rows: object, columns: object
) -> tuple[list[str], list[str]]:
    """Names of the rows and columns of a grid of ``what``: none, or one for each."""
    found = check_names("rows", rows), check_names("columns", columns)
    for name, given, wanted in zip(("rows", "columns"), found, count, strict=True):
        if len(given) not in (0, wanted):
            raise ValueError(f"`{name}` should name {wanted} {name} of {what}, got {len(given)}")
    return found


def _has_items(value: object) -> bool:
    if not isinstance(value, Iterable):
        return False
    return getattr(value, "ndim", 1) > 0


def _shown(value: object) -> str:
    """A value, shortened for an error message."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"
