"""The blocked form: global queries attend to all keys, blocks of long queries to near ones."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, TokenPadding
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.fixed.etc.labels import (
    OTHER_GLOBAL,
    OTHER_LONG,
    OWN_GLOBAL,
    OWN_LONG,
    Labels,
    by_distance,
    by_membership,
    validate_labels,
)
from attnlab.mechanisms.fixed.etc.structure import DEFAULT, ETCOptions, PartOf, members

BLOCK = 32  # long queries in a block, at least


@form(autocast=True)
def blocked(
    q: Queries, k: SelfKeys, v: SelfValues, *,
    labels: Labels = None, padding: TokenPadding = None, part_of: PartOf = None,
    global_keys: SelfKeys | None = None, global_values: SelfValues | None = None,
    options: ETCOptions = DEFAULT, block: Size | None = None,
) -> Outputs:  # fmt: skip
    """The same output, computed for ``block`` long queries at a time (default: half the radius)."""
    validate_labels(labels, part_of, options)
    n = q.shape[-2]
    t = min(options.global_tokens, n)
    q = q * q.shape[-1] ** -0.5
    # The product of each query with each label, computed once: (b, h, n, labels).
    label_scores = None if labels is None else q @ labels.mT
    valid = q.new_ones(1, n, dtype=torch.bool) if padding is None else padding
    owners = members(n, options, part_of, q.device)[:, t:, None]
    is_part = owners == torch.arange(t, device=q.device)  # (b or 1, long, global)
    parts = []
    if t:
        keys = k if global_keys is None else global_keys
        values = v if global_values is None else global_values
        parts.append(_of_global(q[:, :, :t], keys, values, label_scores, valid, is_part))
    if t < n:
        block = max(min(options.radius, n - t - 1) // 2, BLOCK) if block is None else block
        parts.append(_of_long(q, k, v, label_scores, valid, is_part, options, block))
    return torch.cat(parts, dim=-2)


def _of_global(
    q: Tensor, k: Tensor, v: Tensor, label_scores: Tensor | None, valid: Tensor, is_part: Tensor
) -> Tensor:
    """Attention of the t global queries to all keys (g2g and g2l)."""
    t = q.shape[-2]
    scores = q @ k.mT
    if label_scores is not None:
        label_scores = label_scores[:, :, :t]
        g2g = by_distance(label_scores, torch.arange(t, device=q.device)[:, None], t)
        g2l = by_membership(label_scores, is_part.mT[:, None], OWN_LONG, OTHER_LONG)
        scores = scores + torch.cat([g2g, g2l], dim=-1)
    return masked_softmax(scores, valid[:, None, None]) @ v


def _of_long(
    q: Tensor, k: Tensor, v: Tensor, label_scores: Tensor | None, valid: Tensor, is_part: Tensor,
    options: ETCOptions, block: int,
) -> Tensor:  # fmt: skip
    """l2g and l2l: each block of queries with the t global keys and the keys within its radius."""
    t, n = is_part.shape[-1], is_part.shape[-2]
    radius, block = min(options.radius, n - 1), min(block, n)
    rows = torch.arange(block, device=q.device)[:, None] + radius
    columns = torch.arange(block + 2 * radius, device=q.device)
    keys, values = (_neighbourhoods(x[:, :, t:], radius, block) for x in (k, v))
    l2g, l2l = q[:, :, t:] @ k[:, :, :t].mT, _cut(q[:, :, t:], block) @ keys
    if label_scores is not None:
        label_scores = label_scores[:, :, t:]
        l2g = l2g + by_membership(label_scores, is_part[:, None], OWN_GLOBAL, OTHER_GLOBAL)
        l2l = l2l + by_distance(_cut(label_scores, block), rows, len(columns))
    l2g = _cut(l2g, block)
    seen = is_part if options.own_only else torch.ones_like(is_part)
    seen = _cut((seen & valid[:, None, :t])[:, None], block)
    near = (columns - rows).abs() <= radius
    near = near & _neighbourhoods(valid[:, None, t:, None], radius, block)
    masks = (seen, l2g), (near, l2l)
    allowed = [mask.expand(len(q), 1, *scores.shape[2:]) for mask, scores in masks]
    weights = masked_softmax(torch.cat([l2g, l2l], dim=-1), torch.cat(allowed, dim=-1))
    out = weights[..., :t] @ v[:, :, None, :t] + weights[..., t:] @ values.mT
    return out.flatten(2, 3)[:, :, :n]


def _cut(x: Tensor, block: int) -> Tensor:
    """(…, n, width) in blocks of rows, the last one padded: (…, blocks, block, width)."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % block)).unflatten(-2, (-1, block))


def _neighbourhoods(x: Tensor, radius: int, block: int) -> Tensor:
    """The rows (…, n, width) within the radius of each block: (…, blocks, width, columns)."""
    behind = radius + -x.shape[-2] % block
    return F.pad(x, (0, 0, radius, behind)).unfold(-2, block + 2 * radius, block)
