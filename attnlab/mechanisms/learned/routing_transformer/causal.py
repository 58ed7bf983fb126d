"""The causal layer: the most recent members of a token's own cluster, and attention in chunks."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.mechanisms.learned.routing_transformer.clusters import quota

Clustered = Int[Tensor, "b h n"]  # the cluster of each token


def reach(real: Bool[Tensor, "b n"], clusters: int, window: int | None) -> Int[Tensor, "b 1 n"]:
    """How many members of its cluster each token of a causal layer attends to, itself included.

    Unless there is a ``window``, ⌈i / clusters⌉ for the i-th real token, as many as an average
    cluster has by then: what comes later has no part in it.
    """
    return quota(real.cumsum(dim=-1)[:, None], clusters, window)


def recent(own: Clustered, back: Tensor, padding: Tensor | None) -> Bool[Tensor, "b h n m"]:
    """Whether j is one of the ``back`` most recent members of i's cluster, for the last n rows."""
    n, m = back.shape[-1], own.shape[-1]
    allowed = own[..., m - n :, None] == own[..., None, :]
    allowed = allowed & patterns.causal().dense(n, m, own.device)
    if padding is not None:
        allowed = allowed & (padding[:, None, :, None] & padding[:, None, None, :])
    since = allowed.flip(-1).cumsum(dim=-1).flip(-1)  # members from j up to i
    return allowed & (since <= back[..., None])


def by_chunks(
    x: Tensor, v: Tensor, own: Clustered, back: Tensor, *, size: int, padding: Tensor | None
) -> Float[Tensor, "b h n e"]:
    """Tokens in the order of cluster and position, in chunks that see themselves and one back.

    ``size`` is that of a chunk, at least the largest ``back``: what a token attends to is then in
    its own chunk or in the one before.
    """
    h, n = own.shape[1:]
    if padding is not None:
        own = own.masked_fill(~padding[:, None], NOBODY)
    own, order = own.sort(dim=-1, stable=True)
    back = back.expand_as(order).gather(2, order)
    x, v = (chunks(taken(each, order), size) for each in (x, v))
    rows, back = (chunks(each[..., None], size, NOBODY) for each in (own, back))
    columns = _with_previous(rows, NOBODY).mT
    at = torch.arange(2 * size, device=own.device)
    since = at[size:, None] - at
    seen = (rows == columns) & (since >= 0) & (since < back)
    keys, values = _with_previous(x), _with_previous(v)
    x, keys, values, seen = (each.flatten(1, 2) for each in (x, keys, values, _never_empty(seen)))
    out = F.scaled_dot_product_attention(x, keys, values, attn_mask=seen)
    out = out.unflatten(1, (h, -1)).flatten(2, 3)[:, :, :n]
    out = out.masked_fill((own == NOBODY)[..., None], 0)
    return torch.zeros_like(out).scatter(2, along(order, out), out)


NOBODY = -1  # the cluster of padding, and of what fills the last chunk


def chunks(x: Tensor, size: int, fill: int = 0) -> Tensor:
    """(b, h, n, …) → (b, h, ⌈n / size⌉, size, …)."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % size), value=fill).unflatten(2, (-1, size))


def _with_previous(x: Tensor, fill: int = 0) -> Tensor:
    """Each chunk behind the one before it; the first behind a chunk of ``fill``."""
    return torch.cat((F.pad(x, (0, 0, 0, 0, 1, -1), value=fill), x), dim=3)


def _never_empty(seen: Tensor) -> Tensor:
    """Rows without any key see all: such rows are dropped, and must not be NaN until then."""
    return seen | ~seen.any(dim=-1, keepdim=True)


def along(positions: Tensor, x: Tensor) -> Tensor:
    """Positions (b, h, p) for each of the columns of x (b, h, n, d)."""
    return positions[..., None].expand(*positions.shape, x.shape[-1])


def taken(x: Tensor, positions: Tensor) -> Tensor:
    """The vectors (b, h, p, d) at the positions (b, h, p) of each head."""
    return x.gather(2, along(positions, x))
