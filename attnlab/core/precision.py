"""Sums of half precisions: in float32, and not rounded by autocast on the way."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from attnlab.core.shapes import autocasts

HALVES = (torch.float16, torch.bfloat16)


def upcast_dtype(x: Tensor) -> torch.dtype:
    """float32 for half precisions, whose sums would round; otherwise its own."""
    return torch.float32 if x.dtype in HALVES else x.dtype


def upcast(x: Tensor) -> Tensor:
    """Half precisions as float32; other tensors as they are."""
    return x.to(upcast_dtype(x))


def exact_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it: angles of large positions lose their digits in float32."""
    return torch.float32 if device.type == "mps" else torch.float64


def normal(*shape: int, generator: torch.Generator | None) -> Tensor:
    """Draws from N(0, 1), in float64: a seed gives the same numbers whatever the default dtype.

    They are drawn in float32, of which a generator makes other numbers than in float64.
    """
    device = None if generator is None else generator.device
    drawn = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return drawn.to(exact_dtype(drawn.device))


def like_buffer(exact: Tensor, buffer: Tensor) -> Tensor:
    """``exact`` on the device and in the dtype of ``buffer``; in float32 where that is half."""
    return exact.to(upcast_dtype(buffer)).to(buffer.device)


def upcast_together(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors in one precision, float32 or wider.

    A long sum in bfloat16 stops growing at 256 times its terms.
    """
    common = torch.float32
    for x in tensors:
        common = torch.promote_types(common, x.dtype)
    return tuple(x.to(common) for x in tensors)


def call_upcast(module: nn.Module, *given: Tensor | int) -> Any:
    """Call ``module(*given)`` with its parameters as ``upcast`` makes them."""
    return functional_call(module, {k: upcast(x) for k, x in module.named_parameters()}, given)


def no_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Without autocast, which would round every product to half precision."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()


RENAMED = {
    "wide": "upcast",
    "widened": "upcast_together",
    "wide_dtype": "upcast_dtype",
    "widely": "call_upcast",
    "unrounded": "no_autocast",
}


def __getattr__(name: str) -> Any:
    if name in RENAMED:
        raise ImportError(f"{__name__}.{name} is called {RENAMED[name]} today")
    raise AttributeError(f"{__name__} has no {name!r}")
