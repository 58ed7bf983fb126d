"""Derivatives that PyTorch would not take: of bounds, and errors for second ones."""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("attnlab::within", mutates_args=())
def within(x: Tensor, low: float, high: float) -> Tensor:
    """Numbers between ``low`` and ``high``, whose gradient passes unless a step along it would lead
    outside. PyTorch's ``clamp`` has no gradient beyond its bounds, so that what is there stays."""
    return x.clamp(low, high)


@within.register_fake
def _shape(x: Tensor, low: float, high: float) -> Tensor:
    return torch.empty_like(x)


def _remember(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
    x, ctx.low, ctx.high = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (x,) = ctx.saved_tensors
    outwards = ((x <= ctx.low) & (grad > 0)) | ((x >= ctx.high) & (grad < 0))
    return grad.masked_fill(outwards, 0), None, None


within.register_autograd(_backward, setup_context=_remember)


def forbid_double_backward(what: str) -> None:
    """Raise if a second derivative is requested from a backward pass that defines none.

    PyTorch's ``once_differentiable`` looks at the gradient that arrives. Of a plain sum that is a
    constant, and a ``create_graph=True`` would get gradients without a graph, in silence.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"{what} has first derivatives only: without create_graph, or by the naive form"
        )
