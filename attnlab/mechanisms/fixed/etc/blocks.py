"""The blocked form: global queries whole, long ones in blocks with their neighbourhood."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import wide
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.fixed.etc.labels import by_distance, validate_labels
from attnlab.mechanisms.fixed.etc.structure import members, validate

BLOCK = 32  # long queries in a block, at least


@checked
def blocked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n e"],
    *,
    labels: Float[Tensor, "h l d"] | None = None,
    padding: Bool[Tensor, "b n"] | None = None,
    part_of: Int[Tensor, "b n"] | None = None,
    global_keys: Float[Tensor, "b h n d"] | None = None,
    global_values: Float[Tensor, "b h n e"] | None = None,
    global_tokens: int = 16,
    radius: int = 84,
    segment: int = 16,
    own_only: bool = False,
    block: int | None = None,
) -> Float[Tensor, "b h n e"]:
    """The same by pieces; ``block`` long queries at a time (by default half the radius)."""
    validate(global_tokens, radius, segment)
    validate_labels(labels, part_of, global_tokens, own_only)
    if block is not None and block < 1:
        raise ValueError(f"a block has at least one query, got block={block}")
    n, dtype = q.shape[-2], q.dtype
    t = min(global_tokens, n)
    q, k, v = (wide(x) for x in (q, k, v))
    q = q * q.shape[-1] ** -0.5
    # What a query says to each label, computed once: (b, h, n, labels).
    told = None if labels is None else q @ wide(labels).mT
    real = q.new_ones(1, n, dtype=torch.bool) if padding is None else padding
    mine = members(n, t, segment, part_of, q.device)[:, t:, None] == torch.arange(
        t, device=q.device
    )  # (b or 1, long, global)
    parts = []
    if t:
        keys = k if global_keys is None else wide(global_keys)
        values = v if global_values is None else wide(global_values)
        parts.append(_of_global(q[:, :, :t], keys, values, told, real, mine))
    if t < n:
        seen = mine if own_only else torch.ones_like(mine)
        seen = (seen & real[:, None, :t])[:, None]
        block = max(min(radius, n - t - 1) // 2, BLOCK) if block is None else block
        parts.append(_of_long(q, k, v, told, real, mine, seen, t, radius, block))
    return torch.cat(parts, dim=-2).to(dtype)


def _of_global(
    q: Tensor, k: Tensor, v: Tensor, told: Tensor | None, real: Tensor, mine: Tensor
) -> Tensor:
    """g2g and g2l: t queries and all keys."""
    t = q.shape[-2]
    scores = q @ k.mT
    if told is not None:
        told = told[:, :, :t]
        g2g = by_distance(told, torch.arange(t, device=q.device)[:, None], t)
        g2l = torch.where(mine.mT[:, None], told[..., -2, None], told[..., -1, None])
        scores = scores + torch.cat([g2g, g2l], dim=-1)
    return masked_softmax(scores, real[:, None, None]) @ v


def _of_long(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    told: Tensor | None,
    real: Tensor,
    mine: Tensor,
    seen: Tensor,
    t: int,
    radius: int,
    block: int,
) -> Tensor:
    """l2g and l2l: each block of queries with the t global keys and its neighbourhood."""
    n = q.shape[-2] - t
    radius, block = min(radius, n - 1), min(block, n)
    q, own = q[:, :, t:], told if told is None else told[:, :, t:]
    l2g = q @ k[:, :, :t].mT
    if own is not None:
        l2g = l2g + torch.where(mine[:, None], own[..., -4, None], own[..., -3, None])
    l2g, seen = _cut(l2g, block), _cut(seen, block)
    keys, values = (_neighbourhoods(x[:, :, t:], radius, block) for x in (k, v))
    l2l = _cut(q, block) @ keys
    rows = torch.arange(block, device=q.device)[:, None] + radius
    if own is not None:
        l2l = l2l + by_distance(_cut(own, block), rows, l2l.shape[-1])
    columns = torch.arange(l2l.shape[-1], device=q.device)
    near = (columns - rows).abs() <= radius
    near = near & _neighbourhoods(real[:, None, t:, None], radius, block)
    masks = (seen, l2g), (near, l2l)
    alike = [mask.expand(len(q), 1, *scores.shape[2:]) for mask, scores in masks]
    weights = masked_softmax(torch.cat([l2g, l2l], dim=-1), torch.cat(alike, dim=-1))
    out = weights[..., :t] @ v[:, :, None, :t] + weights[..., t:] @ values.mT
    return out.flatten(2, 3)[:, :, :n]


def _cut(x: Tensor, block: int) -> Tensor:
    """(…, n, width) in blocks of rows, the last one filled up: (…, blocks, block, width)."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % block)).unflatten(-2, (-1, block))


def _neighbourhoods(x: Tensor, radius: int, block: int) -> Tensor:
    """Of (…, n, width), what lies within the radius of each block: (…, blocks, width, columns)."""
    behind = radius + -x.shape[-2] % block
    return F.pad(x, (0, 0, radius, behind)).unfold(-2, block + 2 * radius, block)
