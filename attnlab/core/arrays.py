"""Conversion of the callers' arrays to plain numpy arrays, with errors for all other values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.core.arguments import check_list

Array = NDArray[Any]
LARGEST = 1e37  # figures are drawn in single precision


def numbers(name: str, values: Any, axes: str) -> Array:
    """``values`` as a finite, non-empty float64 array with the named axes ("n m").

    Takes lists, numpy arrays and torch tensors of any dtype, on any device, with gradients.
    """
    array = plain(name, values, axes)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number):
        raise TypeError(f"`{name}` should hold numbers, got {_kind(values)} of {array.dtype}")
    if np.iscomplexobj(array):
        raise TypeError(f"`{name}` is complex; draw its absolute value or its real part")
    array = array.astype(np.float64)
    _refuse_not_finite(name, array)
    if np.abs(array).max() > LARGEST:
        raise ValueError(f"`{name}` has values beyond {LARGEST:g}, which no figure can show")
    return array


def booleans(name: str, values: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """``values`` as a bool array of exactly this shape; the meaning of True is the caller's."""
    array = plain(name, values, " ".join("nmabc"[: len(shape)]))
    if array.dtype != bool:
        raise TypeError(
            f"`{name}` should be bool (True = counts), got {_kind(array)} {array.dtype}"
        )
    if array.shape != shape:
        raise ValueError(f"`{name}` should have shape {shape}, got {array.shape}")
    return array


def plain(name: str, values: Any, axes: str) -> Array:
    """``values`` as a numpy array with as many axes as there are letters in ``axes``."""
    if hasattr(values, "detach"):  # a torch tensor, recognised without importing torch
        _refuse_unreadable(name, values)
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    elif isinstance(values, Sequence) and any(hasattr(value, "detach") for value in values):
        values = [plain(name, value, " ".join(axes.split()[1:])) for value in values]
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"`{name}` is ragged: its rows differ in length") from error
    if array.dtype == object:
        raise TypeError(f"`{name}` should be an array of numbers, got {_kind(values)}")
    letters = axes.split()
    if array.ndim != len(letters):
        shape = ", ".join(letters)
        raise ValueError(
            f"`{name}` should have {len(letters)} axes ({shape}), got {array.ndim} with shape "
            f"{array.shape}{_advice(array.ndim, len(letters))}"
        )
    if array.size == 0:
        raise ValueError(f"`{name}` is empty: its shape is {array.shape}, so nothing can be drawn")
    return array


def tokens_for(name: str, tokens: Sequence[Any] | None, count: int, what: str) -> list[Any]:
    """One token per position, or positions 0, 1, 2, … where none are given."""
    if tokens is None:
        return list(range(count))
    tokens = [_item(name, token) for token in check_list(name, tokens)]
    if len(tokens) != count:
        raise ValueError(f"`{name}` has {len(tokens)} labels for {count} {what}")
    return tokens


def _item(name: str, token: Any) -> Any:
    """Numbers of numpy and torch become Python's; other tokens stay as they are."""
    if getattr(token, "ndim", 0):
        raise ValueError(f"`{name}` should hold one token per position, got an array for one")
    if getattr(token, "is_meta", False):
        raise ValueError(f"`{name}` is on the meta device: it has no values to show")
    return token.item() if hasattr(token, "item") else token


def _refuse_unreadable(name: str, tensor: Any) -> None:
    if tensor.is_meta:
        raise ValueError(f"`{name}` is on the meta device: it has a shape but no values to draw")
    if "strided" not in str(tensor.layout):
        raise TypeError(f"`{name}` has layout {tensor.layout}; give {name}.to_dense()")


def _refuse_not_finite(name: str, array: Array) -> None:
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        place = tuple(int(index) for index in wrong[0])
        raise ValueError(
            f"`{name}` has {len(wrong)} values that are NaN or infinite, the first at {place}; "
            "show what may not be seen through `mask`, not through infinities"
        )


def _advice(got: int, wanted: int) -> str:
    if got > wanted:
        return "; pick one first, for example weights[0] for the first of a batch"
    return ""


def _kind(values: Any) -> str:
    return type(values).__name__
