"""Which tensors a watch can follow: dense ones that outlive the call."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from attnlab.core.probe import vmapped
from attnlab.lens.trace.products import PRODUCTS
from attnlab.lens.trace.weights import SOFTMAX

OF_ATTENTION = {"scaled_dot_product_attention", *PRODUCTS, *SOFTMAX}


def unreadable(values: Iterable[Any]) -> str | None:
    """What kind of tensor among ``values`` cannot be followed; None if all can.

    Other open watches do not see the question: each would ask the same about what it sees, and the
    time would triple with each of them.
    """
    with torch._C.DisableTorchFunction():
        return _found(values)


def _found(values: Iterable[Any]) -> str | None:
    for value in values:
        if isinstance(value, list | tuple):
            kind = _found(value)
        elif isinstance(value, Tensor):
            kind = _kind(value)
        else:
            continue
        if kind is not None:
            return kind
    return None


def _kind(tensor: Tensor) -> str | None:
    if tensor.is_nested:
        return "nested tensors"
    if tensor.layout is not torch.strided:
        return "sparse tensors"
    return "tensors inside torch.func.vmap" if vmapped(tensor) else None
