"""PyTorch's ``scaled_dot_product_attention``, given masks and biases in the cheapest way."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import by_distance, patterns
from attnlab.core.positions import Bias, BoundedBias, check_distances, of_pairs
from attnlab.core.precision import upcast_dtype
from attnlab.core.probe import listening


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | patterns.Pattern | None,
    bias: Bias,
    scale: float | None,
) -> Tensor:
    """Queries (b, h, n, d) with keys (b, g, m, d) and values (b, g, m, e): (b, h, n, e)."""
    n, m = q.shape[-2], k.shape[-2]
    more: dict[str, Any] = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    causal = patterns.is_causal(mask)
    if bias is not None:
        return _with_bias(q, k, v, mask, bias, more)
    if causal and n == m:  # PyTorch aligns is_causal at the top left
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **more)
    allowed = patterns.dense_of(mask, q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, **more)


def _with_bias(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | BoundedBias, more: dict[str, Any]
) -> Tensor:
    n, m = q.shape[-2], k.shape[-2]
    check_distances(bias, n, m)
    causal = patterns.is_causal(mask) and n <= m
    plain = causal or mask is None or mask is patterns.FULL
    if plain and (isinstance(bias, BoundedBias) or bias.ndim == 2) and _kernel_takes(q, k, v):
        scale = q.shape[-1] ** -0.5 if more["scale"] is None else more["scale"]
        repeats = q.shape[1] // k.shape[1]
        k, v = (x if repeats == 1 else x.repeat_interleave(repeats, dim=1) for x in (k, v))
        return by_distance.attend(q, k, v, bias, causal=causal, scale=scale)
    added = of_pairs(bias, n, m).to(_mask_dtype(q))
    allowed = patterns.dense_of(mask, q, k)
    if allowed is not None:
        added = added.masked_fill(~allowed, -torch.inf)
    added = added.expand(*q.shape[:2], n, m)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=added, **more)


def _mask_dtype(q: Tensor) -> torch.dtype:
    """On a CPU the kernels add float32 to scores of half precisions, elsewhere the queries' dtype
    alone."""
    return upcast_dtype(q) if q.device.type == "cpu" else q.dtype


def _kernel_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """PyTorch's kernel for CPUs wants one width and one dtype.

    Whoever records, and ``torch.compile``, is shown PyTorch's function instead, with the bias of
    all pairs.
    """
    if listening() or torch.compiler.is_compiling():
        return False
    return q.device.type == "cpu" and q.shape[-1] == v.shape[-1] and q.dtype == k.dtype == v.dtype
