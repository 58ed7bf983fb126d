"""What a layer carries from one call to the next, checked before it is read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

Carried = TypeVar("Carried", bound=tuple[Any, ...])


def check_carried(
    parts: Mapping[str, tuple[Tensor, Sequence[int | None]]], batch: int, like: Tensor
) -> None:
    """Raise unless every part of a state is a tensor of the shape beside it (None: any size), for
    ``batch`` sequences, of the device and, if it is of floats, of the dtype of ``like``."""
    for name, (part, shape) in parts.items():
        if not isinstance(part, Tensor) or part.ndim != len(shape) + 1:
            found = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else repr(type(part))
            raise TypeError(
                f"state should be what step returned, whose {name} has {len(shape) + 1} axes, got "
                f"{found}"
            )
        if len(part) != batch:
            raise ValueError(
                f"the state holds {len(part)} sequences, but {batch} came; start a new batch with "
                "state=None"
            )
        if any(want not in (None, size) for want, size in zip(shape, part.shape[1:], strict=True)):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(
                f"the state's {name} is of shape {tuple(part.shape)}, but this layer needs "
                f"({batch}, {wanted}): it is another layer's state; start with state=None"
            )
        if part.device != like.device:
            raise ValueError(
                f"the state's {name} is on {part.device}, but the layer is on {like.device}; start "
                "with state=None"
            )
        _check_dtype(name, part, like.dtype)


def _check_dtype(name: str, part: Tensor, dtype: torch.dtype) -> None:
    if part.is_floating_point() and part.dtype != dtype:
        raise ValueError(
            f"the state's {name} is {part.dtype}, but the layer computes in {dtype}; convert it "
            "with .to(dtype), or start with state=None"
        )


def check_inputs(parts: Mapping[str, tuple[Tensor, int]], seen: Tensor, like: Tensor) -> None:
    """Raise unless every part of a state holds inputs (b, r, dim) such as ``like``, at most as many
    as beside it, and ``seen`` says of each whether it may be attended to."""
    batch, dim = len(like), like.shape[-1]
    shapes = {name: (part, (None, dim)) for name, (part, _) in parts.items()}
    check_carried(shapes, batch, like)
    total = sum(part.shape[1] for part, _ in parts.values())
    check_carried({"seen": (seen, (total,))}, batch, like)
    for name, (part, most) in parts.items():
        if part.shape[1] > most:
            raise ValueError(
                f"the state's {name} holds {part.shape[1]} vectors, but that of this layer at most "
                f"{most}: it is another layer's state; start with state=None"
            )


def mask_after_reset(seen: Bool[Tensor, "b r"], ended: Bool[Tensor, "b"]) -> Bool[Tensor, "b r"]:
    """The mask after a document has ended: all columns of a sequence whose ``ended`` is True become
    False."""
    check_ended(ended, len(seen))
    return seen & ~ended[:, None]


def check_ended(ended: Tensor, batch: int) -> None:
    """Raise unless ``ended`` says of each of ``batch`` sequences whether its document has ended."""
    if ended.dtype != torch.bool or ended.shape != (batch,):
        raise ValueError(
            f"ended should be one bool for each of the {batch} sequences, got {ended.dtype} of "
            f"shape {tuple(ended.shape)}"
        )


def reset_rows(state: Carried, ended: Bool[Tensor, "b"], **start: float) -> Carried:
    """A named tuple of tensors (b, …) with 0 in those sequences where ``ended`` is True, or with
    the number that ``start`` has for a field."""
    check_ended(ended, len(state[0]))
    fields = state._fields  # type: ignore[attr-defined]
    changed = (
        part.masked_fill(ended.view(-1, *[1] * (part.ndim - 1)), start.get(name, 0))
        for name, part in zip(fields, state, strict=True)
    )
    return type(state)(*changed)


def cleared(layer: nn.Module, state: Any, ended: Bool[Tensor, "b"]) -> Any:
    """The state of a layer after the end of a document in those sequences where ``ended`` is True,
    by ``layer.cleared(state, ended)`` or ``state.cleared(ended)``."""
    if hasattr(layer, "cleared"):
        return layer.cleared(state, ended)  # type: ignore[operator]
    if hasattr(state, "cleared"):
        return state.cleared(ended)
    raise ValueError(
        f"{type(layer).__name__} keeps a state that cannot be cleared for one sequence of a batch "
        "where a new document begins; read one document at a time, or choose a mechanism whose "
        "state has cleared(ended), such as transformer_xl"
    )


def step_in_segments(
    read: Callable[[Tensor, Any], tuple[Tensor, Any]], x: Tensor, state: Any, room: int,
    segment: int,
) -> tuple[Tensor, Any]:  # fmt: skip
    """The outputs (b, h, t, e) of t new tokens, and the state after them: ``read`` takes them one
    segment after the other, of which the present one has ``room`` left."""
    first = min(x.shape[1], room)
    whole, rest = divmod(x.shape[1] - first, segment)
    out = []
    for piece in x.split([first, *[segment] * whole, *([rest] if rest else [])], dim=1):
        mixed, state = read(piece, state)
        out.append(mixed)
    return torch.cat(out, dim=2), state
