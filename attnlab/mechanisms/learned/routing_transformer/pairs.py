"""Which pairs are compared inside of clusters, and what is taken from them."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.probe import note
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.learned.routing_transformer.causal import along, taken
from attnlab.mechanisms.learned.routing_transformer.clusters import (
    Members,
    RoutingOptions,
    membership,
    nearest,
    top_members,
)


def refuse_keys(k: Tensor | None, causal: bool) -> None:
    if causal and k is not None:
        raise ValueError(
            "causal routing shares queries and keys, because a token then attends to earlier "
            "members of its own cluster: leave k out"
        )


def real_tokens(q: Tensor, padding: Tensor | None) -> Tensor:
    """(b, n): which tokens are real."""
    if padding is not None:
        return padding
    return torch.ones(len(q), q.shape[2], dtype=torch.bool, device=q.device)


def scores_of(queries: Tensor, keys: Tensor) -> Tensor:
    return queries @ keys.mT * queries.shape[-1] ** -0.5


def members_of(
    queries: Tensor, keys: Tensor, centroids: Tensor, padding: Tensor | None,
    options: RoutingOptions,
) -> tuple[Members, Members]:  # fmt: skip
    """The members of each cluster among the queries, and among the keys."""
    n = queries.shape[2]
    note("clusters", lambda: nearest(queries, centroids))
    asking = asked = top_members(queries, centroids, options.window, padding)
    note("members", lambda: asking.masked_fill(asking == n, -1))
    if keys is not queries:
        asked = top_members(keys, centroids, options.window, padding)
        note("key_members", lambda: asked.masked_fill(asked == n, -1))
    return asking, asked


def mean_over_clusters(
    scores: Tensor, asking: Members, asked: Members, allowed: Tensor | None = None
) -> Tensor:
    """A softmax in each cluster, averaged over the clusters that a query is in."""
    rows, columns = membership(asking, scores.shape[2]), membership(asked, scores.shape[3])
    total = torch.zeros_like(scores)
    for row, column in zip(rows.unbind(2), columns.unbind(2), strict=True):
        pairs = row[..., None] & column[..., None, :]
        total = total + masked_softmax(scores, pairs if allowed is None else pairs & allowed)
    return total / rows.sum(dim=2).clamp(min=1)[..., None]


def by_clusters(
    queries: Tensor, keys: Tensor, values: Tensor, asking: Members, asked: Members,
    padding: Tensor | None,
) -> Tensor:  # fmt: skip
    """What queries take from the keys of a cluster, in the mean over the clusters they are in."""
    n, clusters = queries.shape[2], asking.shape[2]
    rows, columns = (each.clamp(max=n - 1).flatten(2) for each in (asking, asked))
    parts = (taken(queries, rows), taken(keys, columns), taken(values, columns))
    q_within, k_within, v_within = (
        each.unflatten(2, (clusters, -1)).flatten(1, 2) for each in parts
    )
    seen = None if padding is None else _filled(asked, n)
    out = F.scaled_dot_product_attention(q_within, k_within, v_within, attn_mask=seen)
    out = out.unflatten(1, (-1, clusters)).flatten(2, 3)
    if padding is not None:
        out = out.masked_fill((asking == n).flatten(2)[..., None], 0)
    total = torch.zeros_like(values).scatter_add(2, along(rows, out), out.to(values.dtype))
    count = membership(asking, n).sum(dim=2).clamp(min=1)
    return total / count[..., None]


def _filled(members: Members, n: int) -> Tensor:
    """The places of each cluster that hold a token, as a mask of keys; all where none does."""
    filled = members < n
    return (filled | ~filled.any(dim=-1, keepdim=True)).flatten(1, 2).unsqueeze(-2)
