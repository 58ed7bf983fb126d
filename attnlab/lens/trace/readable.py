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
    """What kind of tensor among ``values`` cannot be followed; None if all can."""
    for value in values:
        if isinstance(value, list | tuple):
            kind = unreadable(value)
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
