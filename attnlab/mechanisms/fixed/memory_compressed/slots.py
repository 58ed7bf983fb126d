"""Slots: their windows, which queries attend to them, and the null slot."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.shapes import KeyPadding

KeyKernel = Float[Tensor, "h k d d"]  # a d × d matrix for each head and place of a window
ValueKernel = Float[Tensor, "h k e e"]
NullKey = Float[Tensor, "h d"] | None
NullValue = Float[Tensor, "h e"] | None


def visible_slots(
    n: int, m: int, *, width: int, stride: int, causal: bool = False, padding: KeyPadding = None,
    device: torch.device | None = None,
) -> Bool[Tensor, "... n slots"] | None:  # fmt: skip
    """The slots of m positions that the last n of them attend to; None: all.

    Causal: those that end at the query or before. With padding: those with a valid position.
    """
    if padding is not None:
        device = padding.device
    first = torch.arange(0, m, stride, device=device)
    seen = None
    if causal:
        seen = first + width - 1 <= torch.arange(m - n, m, device=device)[:, None]
    if padding is None:
        return seen
    valid = unfolded(padding[..., None], width, stride).any(dim=-1).any(dim=-1)[:, None, None]
    return valid if seen is None else valid & seen


def unfolded(x: Tensor, width: int, stride: int) -> Tensor:
    """(…, m, c) → (…, slots, c, width): the window of each slot, zeros past the end."""
    m = x.shape[-2]
    slots = -(-m // stride)
    more = (slots - 1) * stride + width - m
    return F.pad(x, (0, 0, 0, more)).unfold(-2, width, stride)


def refuse_gaps(width: int, stride: int) -> None:
    """A ValueError if some positions would lie between two windows."""
    if not 1 <= stride <= width:
        raise ValueError(
            f"the stride should lie between 1 and the kernel's width of {width}, got {stride}: "
            "with a longer one the positions between two windows would be in no slot"
        )


def without_padded(x: Tensor, padding: Tensor | None) -> Tensor:
    """Keys or values (b, h, m, d) with zeros for padded tokens."""
    return x if padding is None else x.masked_fill(~padding[:, None, :, None], 0)


def with_null(
    keys: Tensor, values: Tensor, seen: Tensor | None,
    null_key: Tensor | None = None, null_value: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Keys, values and mask with the null slot added, if there is one; all queries attend to it."""
    if (null_key is None) != (null_value is None):
        raise ValueError("a null slot has a key and a value: give null_key and null_value, or none")
    if null_key is None or null_value is None:
        return keys, values, seen
    keys, values = (
        torch.cat([x, null.to(x.dtype)[None, :, None].expand(len(x), -1, -1, -1)], dim=2)
        for x, null in ((keys, null_key), (values, null_value))
    )
    return keys, values, None if seen is None else F.pad(seen, (0, 1), value=True)
