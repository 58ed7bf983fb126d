"""PyTorch's own attention."""

import torch
from torch import Tensor

from attnlab.lens.axes import Axis, Layout, aligned, fresh
from attnlab.lens.snapshots import History, Roles, Snapshot
from attnlab.lens.trace.meanings import Found


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    packed: int = 1,
) -> tuple[Found, Layout]:
    """A call of ``scaled_dot_product_attention``, and the layout of its result.

    ``packed``: how many heads stand below one another in the rows of the queries.
    """
    shape = torch.broadcast_shapes(
        *(t.shape[: -3 if enable_gqa else -2] for t in (query, key, value))
    )
    lead = fresh(shape)
    if enable_gqa:
        shared = Axis(key.shape[-3])
        lead = (*lead, (shared, Axis(query.shape[-3] // key.shape[-3])))
        if value.shape[-3] != key.shape[-3]:
            value = value.repeat_interleave(key.shape[-3] // value.shape[-3], dim=-3)
    rows, keys, width, value_width = (
        (Axis(n),)
        for n in (query.shape[-2] // packed, key.shape[-2], query.shape[-1], value.shape[-1])
    )
    below = (Axis(packed),) if packed > 1 else ()

    def lay(tensor: Tensor, *tail: tuple[Axis, ...]) -> Snapshot:
        own = lead
        if enable_gqa and tensor is not query:
            own = (*lead[:-1], (shared,))
        return Snapshot(tensor, (*aligned(tensor.shape[:-2], own), *tail))

    batch, heads = (lead[:-1], lead[-1]) if len(lead) > 1 else (lead, ())
    heads = (*heads, *below)
    roles = Roles(tuple(a for axes in batch for a in axes), heads, rows, keys, width, value_width)
    rows = (*below, *rows)
    history = History(factor=query.shape[-1] ** -0.5 if scale is None else scale, causal=is_causal)
    if attn_mask is not None:
        mask = Snapshot(attn_mask, aligned(attn_mask.shape, (*lead, rows, keys)))
        if attn_mask.dtype == torch.bool:
            history.masks.append((mask, True))
        else:
            history.addends.append((mask, 1.0))
    found = Found(
        "fused", roles, lay(query, rows, width), lay(key, keys, width),
        lay(value, keys, value_width), history, dropout=dropout_p,
    )  # fmt: skip
    return found, (*lead, rows, value_width)
