"""What a model carries from one call to the next, as tensors by name: to detach it, to store it.

A state is a tree of tuples, lists, slices, numbers and tensors, and of objects that keep the
arguments of their constructor under the same names. It is stored by its tensors and whole numbers
alone, each named by its place in the tree, such as ``layers/0/memory``, and comes back into the
shape of another state of the same model.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.train.errors import CheckpointError


def detached(state: Any) -> Any:
    """A state without gradients: its tensors detached, in tuples, named tuples and lists."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, list | tuple):
        return _with_parts(state, {n: detached(part) for n, part in _parts(state).items()})
    return state


def stored(state: Any, place: str = "") -> dict[str, Tensor]:
    """The tensors of a state by place; a whole number as a tensor without axes."""
    if isinstance(state, Tensor):
        return {place: state}
    if _is_number(state):
        return {place: torch.tensor(state)}
    return {
        name: tensor
        for key, part in _parts(state).items()
        for name, tensor in stored(part, f"{place}/{key}".lstrip("/")).items()
    }


def restored(like: Any, tensors: Mapping[str, Tensor], where: str) -> Any:
    """The state that ``stored`` gave, in the form of ``like``, a state of the same model.

    Raises a CheckpointError that begins with ``where`` if it is that of another model.
    """
    left = dict(tensors)
    state = _filled(like, left, "", where)
    if left:
        raise CheckpointError(
            f"{where} holds '{next(iter(left))}', which this model does not carry between batches; "
            "build the model with the options it was trained with, or give another folder"
        )
    return state


def _filled(like: Any, left: dict[str, Tensor], place: str, where: str) -> Any:
    if like is None or isinstance(like, Tensor):
        found = left.pop(place, None)
        return found if found is None or not isinstance(like, Tensor) else found.to(like.device)
    if _is_number(like):
        if place not in left:
            raise CheckpointError(
                f"{where} lacks '{place}', which this model carries between batches; build the "
                "model with the options it was trained with, or give another folder"
            )
        return int(left.pop(place))
    parts = {
        key: _filled(part, left, f"{place}/{key}".lstrip("/"), where)
        for key, part in _parts(like).items()
    }
    return _with_parts(like, parts)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _parts(state: Any) -> dict[str, Any]:
    """What a state is made of, by name; nothing for what has no parts, such as a string."""
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return dict(zip(state._fields, state, strict=True))
    if isinstance(state, list | tuple):
        return {str(index): part for index, part in enumerate(state)}
    if isinstance(state, slice):
        return {"start": state.start, "stop": state.stop}
    kept = getattr(state, "__dict__", {})
    names = inspect.signature(type(state)).parameters if kept else ()
    return {name: kept[name] for name in names if name in kept}


def _with_parts(like: Any, parts: dict[str, Any]) -> Any:
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(**parts)
    if isinstance(like, list | tuple):
        return type(like)(parts.values())
    if isinstance(like, slice):
        return slice(*parts.values())
    return type(like)(**parts) if parts else like
