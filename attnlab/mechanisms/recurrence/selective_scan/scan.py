"""The recurrence of many tokens: several chunks at once, in place, and again backwards."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.forms import upcasting
from attnlab.core.shapes import Tokens
from attnlab.core.tracing import on_cpu, plain, transformed
from attnlab.mechanisms.recurrence.selective_scan.rules import (
    Held,
    PerState,
    SelectiveScanOptions,
    coefficients,
)

PerChannel = Float[Tensor, "dim"]


Shared = Float[Tensor, "b n r"]


Scan = Callable[[Tensor, Tensor, Tensor], Tensor]
"""All states (b, n, …) of $h_t = a_t h_{t-1} + b_t$ from a, b and the state before them."""


SPAN = 2**16
"""Numbers of state of all tokens that are worked on at once: what a processor's caches hold."""


TOGETHER = 2**12
"""Numbers that are worth a call of their own: of smaller states several chunks step together."""


@upcasting
def advance(
    x: Tokens, log_A: PerState, steps: Tokens, B: Shared, C: Shared, skip: PerChannel,
    state: Held, options: SelectiveScanOptions, scan: Scan | None = None,
) -> tuple[Tokens, Held]:  # fmt: skip
    """The outputs of the next tokens after ``state``, and the state after them.

    ``scan`` computes the recurrence of a span; by default a loop over the tokens of chunks.
    """
    A, delta = -log_A.exp(), F.softplus(steps)
    size = (SPAN if on_cpu(x) else 256 * SPAN) // max(1, state.numel())
    parts = []
    pieces = (part.split(max(1, size), dim=1) for part in (x, delta, B, C))
    for each in zip(*pieces, strict=True):
        out, state = _again(_span, *each, A, state, options, scan)
        parts.append(out)
    return torch.cat(parts, dim=1) + skip * x, state


def _again(function: Callable[..., Any], *given: Any) -> Any:
    """``function`` without what its backward pass needs, which is computed again there."""
    if torch.compiler.is_compiling() or transformed() or not torch.is_grad_enabled():
        return function(*given)
    return checkpoint(function, *given, use_reentrant=False, preserve_rng_state=False)


def _span(
    x: Tensor, delta: Tensor, B: Tensor, C: Tensor, A: Tensor, state: Held,
    options: SelectiveScanOptions, scan: Scan | None,
) -> tuple[Tensor, Held]:  # fmt: skip
    decay, drive = coefficients(x, delta, A, B, options)
    in_chunks = _listed if plain() else _Scan.apply if torch.is_grad_enabled() else _scanned
    h = (scan or in_chunks)(decay, drive, state)
    return (h @ C[..., None])[..., 0], h[:, -1].clone()  # a view would keep all of them


def _listed(decay: Tensor, drive: Tensor, state: Held) -> Tensor:
    """All states (b, n, …), one after the other and none in the place of another."""
    h = []
    for fades, token in zip(decay.unbind(1), drive.unbind(1), strict=True):
        state = torch.addcmul(token, fades, state)
        h.append(state)
    return torch.stack(h, dim=1)


class _Scan(torch.autograd.Function):
    """h_t = decay_t h_{t-1} + drive_t along axis 1, and backwards the same from the last."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, drive: Tensor, start: Tensor) -> Tensor:
        h = _scanned(decay, drive.clone(), start)
        ctx.save_for_backward(decay, start, h)
        return h

    @staticmethod
    def backward(ctx: Any, d_h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        forbid_double_backward("the chunked form")
        decay, start, h = ctx.saved_tensors
        later = torch.cat((decay[:, 1:], torch.zeros_like(decay[:, :1])), dim=1)
        d_drive = _scanned(later.flip(1), d_h.flip(1), torch.zeros_like(start)).flip(1)
        before = torch.cat((start[:, None], h[:, :-1]), dim=1)
        return d_drive * before, d_drive, decay[:, 0] * d_drive[:, 0]


def _scanned(decay: Tensor, drive: Tensor, start: Tensor) -> Tensor:
    """All states (b, n, …) in the place of ``drive``, k chunks of them at once."""
    n, h = drive.shape[1], drive
    room = TOGETHER if on_cpu(drive) else SPAN
    k = max(1, min(room // max(1, start.numel()), math.isqrt(n)))
    whole = n - n % k
    chunks, decays = (x[:, :whole].unflatten(1, (k, whole // k)) for x in (h, decay))
    if k > 1:
        _together(chunks, decays, start)
    else:
        _stepped(chunks, decays, start[:, None])
    _stepped(h[:, None, whole:], decay[:, None, whole:], h[:, None, whole - 1])
    return h


def _stepped(h: Tensor, decay: Tensor, state: Tensor) -> None:
    """One token of each chunk after the other, in place of what drives them; axes (b, chunk,
    token, …)."""
    for token, fades in zip(h.unbind(2), decay.unbind(2), strict=True):
        state = token.addcmul_(fades, state)


def _together(h: Tensor, decay: Tensor, start: Tensor) -> None:
    """Every chunk from zero, and then what came before it, times the decays since."""
    _stepped(h, decay, torch.zeros_like(h[:, :, 0]))
    since = decay.clone()
    product, *rest = since.unbind(2)
    for each in rest:
        product = each.mul_(product)
    before = []
    for last, faded in zip(h[:, :, -1].unbind(1), since[:, :, -1].unbind(1), strict=True):
        before.append(start)
        start = torch.addcmul(last, faded, start)
    h.addcmul_(since, torch.stack(before, dim=1)[:, :, None])
