"""PyTorch's ``scaled_dot_product_attention``, given masks and biases in the cheapest way it takes.

A dense bias of h × n × m numbers costs more to read than the attention it is added to. One that
depends on the distance alone has n + m - 1 different numbers per head: with the queries in reverse
order its rows are overlapping windows of these (``core.positions.reversed_rows``), so the kernel is
given a view of them. A causal layer is computed in blocks of queries, each with the keys up to its
last query, since the kernel skips the future only where it is given no bias.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.positions import check_distances, of_pairs, reversed_rows
from attnlab.core.precision import wide_dtype

ROWS = 512
"""Queries in a block of a causal layer with a bias."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | patterns.Pattern | None,
    bias: Tensor | None,
    scale: float | None,
) -> Tensor:
    """Queries (b, h, n, d) with keys (b, g, m, d) and values (b, g, m, e): (b, h, n, e)."""
    n, m = q.shape[-2], k.shape[-2]
    more: dict[str, Any] = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    causal = patterns.is_causal(mask)
    if bias is None and causal and n == m:  # PyTorch aligns is_causal at the top left
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **more)
    if bias is not None:
        check_distances(bias, n, m)
    if bias is not None and bias.ndim == 2 and q.device.type == "cpu":
        if causal and n <= m:
            return _causal_by_distance(q, k, v, bias, more)
        if mask is None or mask is patterns.FULL:
            return _by_distance(q, k, v, bias.to(wide_dtype(q)), more)
    allowed = patterns.as_mask(mask, n, m, q.device, len(q), q.shape[1])
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, **more)
    added = of_pairs(bias, n, m).to(q.dtype)
    if allowed is not None:
        added = added.masked_fill(~allowed, -torch.inf)
    added = added.expand(*q.shape[:2], n, m)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=added, **more)


def _by_distance(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, more: dict[str, Any]) -> Tensor:
    windows = reversed_rows(bias, k.shape[-2])[None]
    out = F.scaled_dot_product_attention(q.flip(-2), k, v, attn_mask=windows, **more)
    return out.flip(-2)


def _causal_by_distance(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, more: dict[str, Any]
) -> Tensor:
    """Blocks of queries, each with the keys up to its last query."""
    n, m = q.shape[-2], k.shape[-2]
    future = torch.arange(1 - m, n, device=q.device) > 0
    bias = bias.to(wide_dtype(q)).masked_fill(future, -torch.inf)
    out = []
    for start in range(0, n, ROWS):
        stop = min(start + ROWS, n)
        seen = m - n + stop
        own = bias[:, n - stop : n - stop + seen + stop - start - 1]
        rows = (q[..., start:stop, :], k[..., :seen, :], v[..., :seen, :])
        out.append(_by_distance(*rows, own, more))
    return torch.cat(out, dim=-2)
