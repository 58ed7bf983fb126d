r"""The linear recurrence $h_t = a_t h_{t-1} + b_t$ of many channels, as one kernel.

Two steps in a row are a step again, $(a', b') \circ (a, b) = (a' a,\; a' b + b')$, and this
composition is associative. So the tokens of a tile are composed as a tree, by a scan, and only
from tile to tile the state is handed on. One program works through the tokens of one sequence for
some channels: all of them are one launch, whatever the length.

The gradient of b is the same recurrence from the last token to the first, with the decays one token
later, $\bar b_t = \bar h_t + a_{t+1} \bar b_{t+1}$, and $\bar a_t = \bar b_t h_{t-1}$.

Blelloch. Prefix sums and their applications. CMU-CS-90-190, 1990. Martin, Cundy. Parallelizing
linear recurrent neural nets over sequence length. ICLR 2018, arXiv:1709.04057.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.kernels import launch

TOKENS, CHANNELS = 64, 64
"""The size of a tile: tokens that are scanned together, and channels of one program."""


@triton.jit
def compose(a, b, later_a, later_b):  # type: ignore[no-untyped-def]
    """Two steps in a row as one."""
    return a * later_a, later_a * b + later_b


@triton.jit
def linear_recurrence(  # type: ignore[no-untyped-def]
    a_ptr, b_ptr, start_ptr, h_ptr, n, width,
    BACKWARD: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """All states h (b, n, width) of one sequence and CHANNELS channels; from the last token on,
    with the decays one token later, if BACKWARD."""
    sequence = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    mine, row = channel < width, tl.arange(0, TOKENS)
    h = tl.load(start_ptr + sequence * width + channel, mask=mine, other=0)
    for first in range(0, n, TOKENS):
        t = first + row
        there = (t < n)[:, None] & mine[None, :]
        if BACKWARD:
            t = n - 1 - t
        at = (sequence * n + t)[:, None] * width + channel[None, :]
        shift = width if BACKWARD else 0
        known = there & (t < n - 1)[:, None] if BACKWARD else there
        # a step beyond the end is the identity: the last row of a tile is its state
        a = tl.load(a_ptr + at + shift, mask=known, other=1)
        b = tl.load(b_ptr + at, mask=there, other=0)
        a, b = tl.associative_scan((a, b), 0, compose)
        states = b + a * h[None, :]
        tl.store(h_ptr + at, states, mask=there)
        h = tl.sum(tl.where((row == TOKENS - 1)[:, None], states, 0), axis=0)


def _launched(a: Tensor, b: Tensor, start: Tensor, backward: bool = False) -> Tensor:
    n, width = b.shape[1:]
    h, tokens = torch.empty_like(b), min(TOKENS, triton.next_power_of_2(max(2, n)))
    channels = min(CHANNELS, triton.next_power_of_2(max(1, width)))
    grid = (len(b), triton.cdiv(width, channels))
    if h.numel():
        sizes = {"BACKWARD": backward, "TOKENS": tokens, "CHANNELS": channels}
        launch(linear_recurrence, grid, a, b, start, h, n, width, **sizes)
    return h


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        a, b, start = (x.contiguous() for x in (a, b, start))
        h = _launched(a, b, start)
        ctx.save_for_backward(a, start, h)
        return h

    @staticmethod
    def backward(ctx: Any, d_h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        forbid_double_backward("the triton form")
        a, start, h = ctx.saved_tensors
        d_b = _launched(a, d_h.contiguous(), torch.zeros_like(start), backward=True)
        before = torch.cat((start[:, None], h[:, :-1]), dim=1)
        return d_b * before, d_b, a[:, 0] * d_b[:, 0]


@torch.compiler.disable  # it looks at no kernel of the interpreter
def recurrence(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """All states (b, n, …) of $h_t = a_t h_{t-1} + b_t$ along axis 1, from ``start`` (b, …), in
    float32 or float64; first derivatives only."""
    flat = _Recurrence.apply(a.flatten(2), b.flatten(2), start.flatten(1))
    return flat.view_as(b)
