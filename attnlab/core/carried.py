"""What a layer carries from one call to the next, checked before it is read."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def check_carried(
    parts: Mapping[str, tuple[Tensor, Sequence[int | None]]], batch: int, like: Tensor
) -> None:
    """Raise unless every part of a state is a tensor of the shape beside it (None: any size), for
    ``batch`` sequences, of the device and, if it is of floats, of the dtype of ``like``."""
    for name, (part, shape) in parts.items():
        if not isinstance(part, Tensor) or part.ndim != len(shape) + 1:
            found = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else repr(type(part))
            raise TypeError(
                f"state should be what step returned, whose {name} has {len(shape) + 1} axes; got "
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


def pieces(t: int, room: int, segment: int) -> list[int]:
    """t new tokens cut at the ends of segments, of which the present one has ``room`` left."""
    first = min(t, room)
    whole, rest = divmod(t - first, segment)
    return [first, *[segment] * whole, *([rest] if rest else [])]
