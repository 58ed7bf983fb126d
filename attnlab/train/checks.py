"""Checks of arguments, with errors that name them; each returns the value as plain Python."""

import math
import numbers
import os
import reprlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

MOST_STEPS = 10**9
MOST_ROWS = 2**20
"""The most rows that a batch may have: more is surely a typing error and would fill the memory."""


def shown(value: object) -> str:
    """A value for an error message: its shortened repr, or its type where that is not possible."""
    try:
        return reprlib.repr(value)
    except Exception:  # a repr that fails, or a number of too many digits
        return f"a {type(value).__name__}"


def as_integer(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """A whole number (NumPy's too), never True, a fraction or a string."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = int(value)
        if most is not None and number > most:
            raise ValueError(f"{name} should be at most {most:,}; {shown(value)} was given")
        if least is None or number >= least:
            return number
    raise ValueError(f"{name} should be {_whole(least)}; {shown(value)} was given")


def _whole(least: int | None) -> str:
    return "a whole number" if least is None else f"a whole number of at least {least}"


def as_number(name: str, value: object, *, positive: bool, optional: bool = False) -> float:
    """A finite number > 0 (`positive`) or ≥ 0."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = _float(value)
        if math.isfinite(number) and (number > 0 if positive else number >= 0):
            return number
    limit = "above 0" if positive else "of at least 0"
    raise ValueError(
        f"{name} should be a finite number {limit}{' or None' if optional else ''}; "
        f"{shown(value)} was given"
    )


def _float(value: numbers.Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} should be True or False; {shown(value)} was given")


def as_folder(folder: Any) -> Path:
    if isinstance(folder, str | os.PathLike) and str(folder) and "\0" not in str(folder):
        return Path(folder)
    raise ValueError(
        f"folder should be the path of a folder, such as 'runs/a'; {shown(folder)} was given"
    )


def check_model(model: object) -> None:
    """A module with weights in memory."""
    if not isinstance(model, nn.Module):
        hint = "; that is a class: call it to build a model" if isinstance(model, type) else ""
        raise TypeError(f"model should be a torch.nn.Module; {shown(model)} was given{hint}")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not isinstance(tensor, nn.UninitializedParameter) and tensor.is_meta:
            raise ValueError(
                f"The model's '{name}' is on the meta device, so it has no values; build the model "
                "on a device, or use model.to_empty(device=...) and initialise it"
            )


def check_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer should be a torch.optim.Optimizer; {shown(optimizer)} was given"
        )
