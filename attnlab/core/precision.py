"""Sums of half precisions: in float32, and not rounded by autocast on the way."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from attnlab.core.shapes import autocasts

HALVES = (torch.float16, torch.bfloat16)


def wide_dtype(x: Tensor) -> torch.dtype:
    """float32 for half precisions, whose sums would round; otherwise its own."""
    return torch.float32 if x.dtype in HALVES else x.dtype


def wide(x: Tensor) -> Tensor:
    """Half precisions as float32."""
    return x.to(wide_dtype(x))


def exact_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it: angles of large positions lose their digits in float32."""
    return torch.float32 if device.type == "mps" else torch.float64


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All in one precision, float32 or wider.

    A long sum in bfloat16 stops growing at 256 times its terms.
    """
    common = torch.float32
    for x in tensors:
        common = torch.promote_types(common, x.dtype)
    return tuple(x.to(common) for x in tensors)


def widely(module: nn.Module, *given: Tensor | int) -> Any:
    """``module(*given)`` with its parameters as ``wide`` makes them."""
    return functional_call(module, {k: wide(x) for k, x in module.named_parameters()}, given)


def unrounded(device: torch.device) -> AbstractContextManager[Any]:
    """Without autocast, which would round every product to half precision."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()
