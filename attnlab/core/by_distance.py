r"""Attention with biases by distance on a CPU, without a tensor of n × m numbers.

A bias of h × n × m numbers takes longer to read than the attention that it is added to. One that
depends on the distance alone has n + m - 1 different numbers per head, and with the queries in
reverse order its rows are overlapping windows of these (``core.positions.reversed_rows``). The
kernel under PyTorch's ``scaled_dot_product_attention`` is given a view of them.

Forward. A causal layer is cut into blocks of queries. Each attends to the keys before the block,
through such a view, and to those of the block itself, where the kernel skips the future; the biases
of these are dense, and the same for all blocks. Two attentions of the same queries over different
keys are merged by their log-sum-exps.

Backward. With output and log-sum-exp over all keys, the gradients that a piece contributes are
those of ordinary attention (Dao et al. 2022, arXiv:2205.14135, section 3.1), and the kernel gives
them. The gradient of a bias is the sum of the scores' gradients over its pairs,

$$\frac{\partial L}{\partial s_{ij}} = w_{ij}\, (\partial o_i \cdot v_j - \partial o_i \cdot o_i),$$

which the kernel does not give: these are computed again, block by block, by the equation. Of a bias
that is constant beyond a reach only the pairs within it are. A row of these gradients sums to 0,
so what the pairs beyond it have in sum is known; where both sides are seen, the part of the past is
$\sum_i \mu_i\, \partial o_i \cdot (p_i - o_i)$, with the output $p_i$ over those keys alone and
their share $\mu_i$ of the weights.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.positions import BoundedBias, reversed_rows
from attnlab.core.precision import upcast, upcast_dtype

ROWS = 768
"""Least queries in a block of a causal layer: from 768 on PyTorch's kernel takes more at once."""

BAND = 64
"""Queries in a block whose scores' gradients are computed by the equation."""

NEVER = -1e30
"""A bias that leaves no weight: unlike -∞, a row of them has a log-sum-exp."""

LOG2_E = math.log2(math.e)
"""For exponentials by exp2: exp is up to 100 times slower where its results underflow."""

_aten = torch.ops.aten


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | BoundedBias, *, causal: bool, scale: float
) -> Tensor:
    """Queries (b, h, n, d) with keys and values (b, h, m, d); they are the last n of m positions.

    First derivatives only.
    """
    biases, reach = (bias.near, bias.reach) if isinstance(bias, BoundedBias) else (bias, None)
    learned = biases.requires_grad and torch.is_grad_enabled()
    out: Tensor = _Attention.apply(q, k, v, biases, reach, causal, scale, learned)
    return out


class _Piece(NamedTuple):
    """Some queries with some keys; on the ``diagonal`` a query sees the keys up to itself."""

    rows: slice
    keys: slice
    diagonal: bool = False


def _pieces(n: int, m: int, causal: bool) -> list[list[_Piece]]:
    """For each block of queries its pieces."""
    if not causal:
        return [[_Piece(slice(0, n), slice(0, m))]]
    blocks = []
    for rows in _blocks(n, ROWS):
        before = m - n + rows.start
        own = _Piece(rows, slice(before, m - n + rows.stop), diagonal=True)
        blocks.append([_Piece(rows, slice(0, before)), own] if before else [own])
    return blocks


def _without_past(n: int, reach: int) -> list[list[_Piece]]:
    """All but the keys that are more than ``reach`` before a whole block of queries."""
    return [[_Piece(rows, slice(max(0, rows.start - reach), n))] for rows in _blocks(n, ROWS)]


def _blocks(n: int, least: int) -> list[slice]:
    """Blocks of one size, but for the last, with ``least`` or more in each where n allows it."""
    size = math.ceil(n / max(1, n // least))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class _Rows(NamedTuple):
    """Queries, and in a backward pass the gradient that arrives and what came out."""

    q: Tensor
    do: Tensor | None = None
    out: Tensor | None = None
    lse: Tensor | None = None

    def at(self, rows: slice) -> "_Rows":
        return _Rows(*(None if x is None else x[:, :, rows] for x in self))  # type: ignore[arg-type]

    def reversed(self) -> "_Rows":
        return _Rows(*(None if x is None else x.flip(2) for x in self))  # type: ignore[arg-type]


class _Kernel:
    """PyTorch's kernel for the pieces of one attention."""

    def __init__(self, rows: _Rows, k: Tensor, v: Tensor, table: Tensor, scale: float) -> None:
        self.rows, self.k, self.v, self.table, self.scale = rows, k, v, table, scale
        self.n = rows.q.shape[2]
        self.reversed = rows.reversed()
        self.dense: Tensor | None = None  # biases on the diagonal, of the first block

    def forward(self, piece: _Piece) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp of the queries over these keys."""
        rows, k, v, bias = self._given(piece)
        out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
            rows.q, k, v, 0.0, piece.diagonal, attn_mask=bias, scale=self.scale
        )
        return (out, lse) if piece.diagonal else (out.flip(2), lse.flip(2))

    def backward(self, piece: _Piece) -> tuple[Tensor, Tensor, Tensor]:
        """What the piece contributes to the gradients of its queries, keys and values."""
        (q, do, out, lse), k, v, bias = self._given(piece)
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            do, q, k, v, out, lse, 0.0, piece.diagonal, attn_mask=bias, scale=self.scale
        )
        return (dq if piece.diagonal else dq.flip(2)), dk, dv

    def _given(self, piece: _Piece) -> tuple[_Rows, Tensor, Tensor, Tensor]:
        rows, keys = piece.rows, piece.keys
        k, v = self.k[:, :, keys], self.v[:, :, keys]
        size = rows.stop - rows.start
        if piece.diagonal and self.dense is not None:
            return self.rows.at(rows), k, v, self.dense[:, :, :size, :size]
        bias = reversed_rows(_cut(self.table, self.n, rows, keys), k.shape[2])[None]
        if piece.diagonal:
            self.dense = bias.flip(2)
            return self.rows.at(rows), k, v, self.dense
        from_the_end = slice(self.n - rows.stop, self.n - rows.start)
        return self.reversed.at(from_the_end), k, v, bias


def _cut(table: Tensor, n: int, rows: slice, keys: slice) -> Tensor:
    """The distances between some of n queries and some keys."""
    first = keys.start - rows.stop + n
    return table[:, first : first + rows.stop - rows.start + keys.stop - keys.start - 1]


# ---- forward


def _without_negligible(table: Tensor, q: Tensor, k: Tensor, scale: float) -> Tensor:
    """The biases, or ``NEVER`` where the weights would be lost in rounding in any case.

    With R the largest possible score, and the query's own position among the keys, the weight at
    distance δ is at most exp(2R + b(δ) - b(0)). ALiBi leaves many that are denormal numbers, with
    which a product takes up to ten times as long.
    """
    n, m = q.shape[2], k.shape[2]
    if n > m or not q.numel():
        return table.clamp(min=NEVER)
    lengths = [upcast(x).square().sum(-1).amax().sqrt() for x in (q, k)]
    least = 2 * abs(scale) * lengths[0] * lengths[1] + math.log(m / torch.finfo(table.dtype).eps)
    return table.masked_fill(table < table[:, m - 1 : m] - least, NEVER).clamp(min=NEVER)


def _attended(kernel: _Kernel, blocks: list[list[_Piece]]) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp over all pieces."""
    found = [functools.reduce(_merged, map(kernel.forward, pieces)) for pieces in blocks]
    outs, lses = zip(*found, strict=True)
    return found[0] if len(found) == 1 else (torch.cat(outs, dim=2), torch.cat(lses, dim=2))


def _merged(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two attentions of the same queries over different keys, as one over all of them."""
    lse = torch.logaddexp(one[1], other[1])
    share = torch.exp(other[1] - lse)[..., None]
    return torch.lerp(upcast(one[0]), upcast(other[0]), share).to(one[0].dtype), lse


def _in_two(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, reach: int, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log-sum-exp, and μ (p - o) of the keys more than ``reach`` before the query."""
    n, beyond = q.shape[2], reach + 1
    past, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
        q[:, :, beyond:], k[:, :, : n - beyond], v[:, :, : n - beyond], 0.0, True, scale=scale
    )
    lse = lse + table[:, :1]
    nearer = table.clone()
    nearer[:, : n - beyond] = NEVER
    kernel = _Kernel(_Rows(q), k, v, nearer, scale)
    out, all_lse = _attended(kernel, _without_past(n, reach))
    rows = slice(beyond, n)
    late, late_lse = _merged((out[:, :, rows], all_lse[:, :, rows]), (past, lse))
    out = torch.cat((out[:, :, :beyond], late), dim=2)
    all_lse = torch.cat((all_lse[:, :, :beyond], late_lse), dim=2)
    share = torch.exp(lse - late_lse)[..., None]
    return out, all_lse, share * (past - late)


# ---- backward


def _of_inputs(kernel: _Kernel, blocks: list[list[_Piece]]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values."""
    if len(blocks) == len(blocks[0]) == 1:
        return kernel.backward(blocks[0][0])
    dq, dk, dv = (torch.zeros_like(upcast(x)) for x in (kernel.rows.q, kernel.k, kernel.v))
    for piece in (piece for pieces in blocks for piece in pieces):
        d_rows, d_keys, d_values = kernel.backward(piece)
        dq[:, :, piece.rows] += d_rows
        dk[:, :, piece.keys] += d_keys
        dv[:, :, piece.keys] += d_values
    return dq, dk, dv


def _of_distances(kernel: _Kernel, causal: bool, within: int | None) -> Tensor:
    """The gradient of the bias of each distance, those ``within`` a reach at least.

    All but the sums are in units of log 2, the queries in reverse order.
    """
    (q, do, out, lse), n, m = kernel.reversed, kernel.n, kernel.k.shape[2]
    assert do is not None
    assert out is not None
    assert lse is not None
    table = kernel.table * LOG2_E
    if causal:
        table[:, m:] = NEVER
    reach = n + m if within is None else within
    last = m - n if causal else m - n + reach
    q, lse = upcast(q) * (kernel.scale * LOG2_E), lse[..., None] * LOG2_E
    do, k, v = upcast(do), upcast(kernel.k), upcast(kernel.v)
    mean = (do * upcast(out)).sum(-1, keepdim=True)
    total = torch.zeros_like(table)
    for rows in _blocks(n, BAND):
        keys = slice(max(0, m - n + rows.start - reach), min(m, last + rows.stop))
        own, bias = slice(n - rows.stop, n - rows.start), _cut(table, n, rows, keys)
        scores = (q[:, :, own] @ k[:, :, keys].mT).add_(reversed_rows(bias, k[:, :, keys].shape[2]))
        weights = scores.sub_(lse[:, :, own]).exp2_()
        d_scores = (do[:, :, own] @ v[:, :, keys].mT).sub_(mean[:, :, own]).mul_(weights)
        _cut(total, n, rows, keys).add_(_over_distances(d_scores))
    return total


def _over_distances(x: Tensor) -> Tensor:
    """The sums of x (b, h, n, m), the last query first, over the pairs of each distance: (h, r)."""
    n = x.shape[2]
    moved = F.pad(x, (0, n)).flatten(2)[..., :-n]  # each row one further to the right
    return moved.unflatten(2, (n, -1)).sum((0, 2))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, biases: Tensor, reach: int | None, causal: bool,
        scale: float, learned: bool,
    ) -> Tensor:  # fmt: skip
        n, m, past = q.shape[2], k.shape[2], None
        table = biases if reach is None else BoundedBias(biases).by_distance(n, m)
        table = _without_negligible(table.to(upcast_dtype(q)), q, k, scale)
        if learned and not causal and reach is not None and reach + 1 < n == m:
            out, lse, past = _in_two(q, k, v, table, reach, scale)
        else:
            kernel = _Kernel(_Rows(q), k, v, table, scale)
            out, lse = _attended(kernel, _pieces(n, m, causal))
        ctx.save_for_backward(q, k, v, table, out, lse, past)
        ctx.reach, ctx.causal, ctx.scale, ctx.dtype = reach, causal, scale, biases.dtype
        return out

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("attention with a bias by distance")
        q, k, v, table, out, lse, past = ctx.saved_tensors
        do = do if do.stride(-1) == 1 else do.contiguous()
        kernel = _Kernel(_Rows(q, do, out, lse), k, v, table, ctx.scale)
        grads = _of_inputs(kernel, _pieces(q.shape[2], k.shape[2], ctx.causal))
        dq, dk, dv = (d.to(q.dtype) for d in grads)
        d_biases = None
        if ctx.needs_input_grad[3]:
            with torch.autocast(q.device.type, enabled=False):
                d_biases = _of_biases(kernel, past, ctx.reach, ctx.causal).to(ctx.dtype)
        return dq, dk, dv, d_biases, None, None, None, None


def _of_biases(kernel: _Kernel, past: Tensor | None, reach: int | None, causal: bool) -> Tensor:
    """The gradient of the biases as they were given."""
    n, m = kernel.n, kernel.k.shape[2]
    if reach is None:
        return _of_distances(kernel, causal, None)
    by_reach = torch.arange(1 - m, n, device=kernel.table.device).clamp(-reach, reach) + reach
    if past is None and not causal:
        every = _of_distances(kernel, causal, None)
        return every.new_zeros(len(every), 2 * reach + 1).index_add_(1, by_reach, every)
    near = _of_distances(kernel, causal, reach)
    near = F.pad(near, (reach, reach))[:, m - 1 : m + 2 * reach]
    rest = -near.sum(1)
    if past is not None:
        assert kernel.rows.do is not None
        before = (upcast(kernel.rows.do[:, :, reach + 1 :]) * past).sum((0, 2, 3))
        near[:, -1] += rest - before
        rest = before
    near[:, 0] += rest
    return near
