"""Recurrent layers: what the pages of recurrences share.

A recurrent layer reads tokens from left to right and carries a state, a ``NamedTuple`` of tensors
(b, …). What is written here does not depend on what the state holds.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.core.heads import zero_padded
from attnlab.core.shapes import TokenPadding, Tokens


def skipping_padding(run: Callable[[Tokens], Tokens], x: Tokens, padding: TokenPadding) -> Tokens:
    """``run`` on the real tokens of each sequence as if they stood alone; zeros at padding.

    The real tokens are moved to the front, in their order, so that no padded token comes between
    two of them; ``run`` is causal, so what follows them changes nothing.
    """
    if padding is None:
        return run(x)
    order = (~padding).int().argsort(dim=1, stable=True)
    there, back = (at[..., None].expand_as(x) for at in (order, order.argsort(dim=1)))
    out = run(zero_padded(x, padding).gather(1, there))
    return zero_padded(out.gather(1, back), padding)


def check_state(state: Any, needed: Any) -> None:
    """Raise a sentence unless every tensor of ``state`` has the shape, dtype and device of the one
    in ``needed``, the state at the beginning."""
    for name, found, wanted in zip(needed._fields, state, needed, strict=True):
        if not isinstance(found, Tensor):
            raise TypeError(
                f"the state's `{name}` should be a tensor, got a {type(found).__name__}: give back "
                "what step returned, or state=None to begin"
            )
        if _kind(found) != _kind(wanted):
            raise ValueError(
                f"the state's `{name}` is {_words(found)}, but this call needs {_words(wanted)}: "
                "start a new batch with state=None, and give each layer its own state"
            )


def _kind(x: Tensor) -> tuple[torch.Size, torch.dtype, torch.device, torch.layout]:
    return x.shape, x.dtype, x.device, x.layout


def _words(x: Tensor) -> str:
    kind = "" if x.layout == torch.strided else "sparse "
    return f"{kind}{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)} on {x.device}"
