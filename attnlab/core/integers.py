"""Integers: what a size, a count or a position has to be."""

import numbers
from typing import cast

import torch

LARGEST = 2**63 - 1


def check_integer(name: str, value: object, *, at_least: int | None = None) -> int:
    """``value`` as an ``int``; integers of numpy are welcome. A length that stands for any size
    while a program is exported stays what it is.

    Raises TypeError where it is no integer (a float, a bool, a string), and ValueError where it is
    smaller than ``at_least`` or larger than what a tensor can hold.
    """
    if isinstance(value, torch.SymInt):
        return cast(int, value)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} should be a whole number, got {value!r}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} should be at least {at_least}, got {value}")
    if abs(int(value)) > LARGEST:
        raise ValueError(f"{name} should be at most 2**63 - 1, as in a tensor, got {value}")
    return int(value)
