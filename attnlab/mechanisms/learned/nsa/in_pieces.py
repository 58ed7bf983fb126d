"""The compressed branch of NSA on a CPU: some queries at a time, and only complete stretches.

Of a piece of queries the weights of the stretches fit the processor's cache. They give the output
and the worth of the blocks, and are not kept: the backward pass computes them a second time.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.chosen_blocks import NOTHING
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.probe import listening
from attnlab.core.tracing import transformed
from attnlab.mechanisms.learned.nsa.stretches import Chosen, NSAOptions, most_valuable, worth

ROWS = 1024
"""Queries of a piece, those of all heads that share keys together."""
LOG2_E = math.log2(math.e)
"""For exponentials by exp2, which PyTorch computes faster than exp."""


def takes(q: Tensor, stretches: int, m: int, padding: Tensor | None) -> bool:
    """Whole texts with a stretch, on a CPU; whoever records, ``torch.compile`` and ``torch.func``
    are shown the weights of all pairs instead."""
    hidden = torch.compiler.is_compiling() or transformed() or listening()
    whole = padding is None and q.shape[2] == m and stretches > 0
    return whole and not hidden and q.device.type == "cpu"


def compress_and_choose(
    q: Float[Tensor, "b h n d"], k: Float[Tensor, "b g t d"], v: Float[Tensor, "b g t e"],
    options: NSAOptions,
) -> tuple[Float[Tensor, "b h n e"], Chosen]:  # fmt: skip
    """What each query takes of the stretches, whose keys and values are ``k`` and ``v``, and the
    blocks that they choose. First derivatives only."""
    b, g = k.shape[:2]
    grouped = q.unflatten(1, (g, -1)).flatten(0, 1)
    out, chosen = _Compressed.apply(grouped, k.flatten(0, 1), v.flatten(0, 1), options)
    return out.unflatten(0, (b, g)).flatten(1, 2), chosen.unflatten(0, (b, g))


class _Piece(NamedTuple):
    """Some queries of one group of heads, and how many stretches each of them may read."""

    group: int
    rows: slice
    complete: Int[Tensor, "rows"]

    @property
    def reads(self) -> slice:
        """The stretches that some of the queries may read; the first one if there is none."""
        return slice(0, max(1, int(self.complete[-1])))

    def scores(self, q: Tensor, k: Tensor) -> Float[Tensor, "r rows t"]:
        """The scores of scaled queries, in units of log 2; −∞ where a query may not read."""
        scores = (q.flatten(0, 1) @ k.mT).unflatten(0, q.shape[:2])
        least = int(self.complete[0])
        hidden = torch.arange(least, scores.shape[-1]) >= self.complete[:, None]
        scores[..., least:].masked_fill_(hidden, -torch.inf)
        return scores


def _pieces(q: Tensor, options: NSAOptions) -> Iterator[_Piece]:
    g, r, n = q.shape[:3]
    size = max(1, ROWS // r)
    complete = ((torch.arange(n) + 1 - options.stretch) // options.stride + 1).clamp(min=0)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        for group in range(g):
            yield _Piece(group, rows, complete[rows])


class _Compressed(torch.autograd.Function):
    """``q`` is (g, r, n, d), ``k`` and ``v`` are (g, t, …): r heads share keys."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, options: NSAOptions
    ) -> tuple[Tensor, Tensor]:
        (g, r, n), size = q.shape[:3], options.fitted(q.shape[2])
        out, lse = q.new_empty(g, r, n, v.shape[-1]), q.new_empty(g, r, n, 1)
        chosen = torch.full((g, n, min(options.chosen, -(-n // size))), NOTHING)
        q = q * (q.shape[-1] ** -0.5 * LOG2_E)
        for piece in _pieces(q, options):
            a, rows = piece.group, piece.rows
            powers = piece.scores(q[a, :, rows], k[a, piece.reads])
            largest = powers.amax(dim=-1, keepdim=True)
            largest = largest.masked_fill_(largest == -torch.inf, 0)  # of those that read nothing
            powers = powers.sub_(largest).exp2_()
            total = powers.sum(dim=-1, keepdim=True)
            lse[a, :, rows] = torch.where(total > 0, largest + total.log2(), torch.inf)
            total = total + (total == 0)
            sums = powers.flatten(0, 1) @ v[a, piece.reads]
            torch.div(sums.unflatten(0, powers.shape[:2]), total, out=out[a, :, rows])
            own = torch.arange(rows.start, rows.stop)[:, None] // size
            value = (worth(powers[None], int(own[-1]) + 1, options)[0] / total).sum(0)
            found = most_valuable(value, own, options)
            chosen[a, rows, : found.shape[-1]] = found
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = options
        ctx.mark_non_differentiable(chosen)
        return out, chosen

    @staticmethod
    def backward(ctx: Any, do: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("attention to stretches")
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for piece in _pieces(q, ctx.options):
            a, rows = piece.group, piece.rows
            at, keys, values = piece.reads, k[a, piece.reads], v[a, piece.reads]
            weights = piece.scores(q[a, :, rows], keys).sub_(lse[a, :, rows]).exp2_().flatten(0, 1)
            d_rows = do[a, :, rows]
            mean = (d_rows * out[a, :, rows]).sum(-1, keepdim=True).flatten(0, 1)
            d_rows = d_rows.flatten(0, 1)
            dv[a, at] += weights.mT @ d_rows
            d_scores = (d_rows @ values.mT).sub_(mean).mul_(weights)
            dq[a, :, rows] = (d_scores @ keys).view_as(q[a, :, rows])
            dk[a, at] += d_scores.mT @ q[a, :, rows].flatten(0, 1)
        return dq.mul_(q.shape[-1] ** -0.5), dk.div_(LOG2_E), dv, None
