r"""Attention over some of the keys, and how two such results become one.

Of queries over a set S of keys let o be the output and L the log-sum-exp of the scores:

$$L = \log \sum_{j \in S} e^{s_j},\qquad o = \sum_{j \in S} e^{s_j - L}\, v_j.$$

Over the union of two disjoint sets

$$L = \log(e^{L_1} + e^{L_2}),\qquad o = e^{L_1 - L} o_1 + e^{L_2 - L} o_2.$$

The merge is associative and commutative, and (0, -∞), attention over no key at all, changes
nothing. The mean of o_1 and o_2 would be wrong: a set with larger scores weighs more.

Backward, with the L and o of the whole, each set of keys gives its part of the gradients alone:

$$p_j = e^{s_j - L},\quad dv_j = p_j\, do,\quad ds_j = p_j\,(do \cdot v_j - do \cdot o).$$
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.core.precision import upcast


class Partial(NamedTuple):
    """Attention over some of the keys: the output (b, h, n, e) and the log-sum-exp (b, h, n)."""

    out: Tensor
    lse: Tensor


def nothing(q: Tensor, v: Tensor) -> Partial:
    """Attention over no key: the neutral element of the merge."""
    shape, q = q.shape[:3], upcast(q[:, :, :1])
    return Partial(q.new_zeros(*shape, v.shape[-1]), q.new_full(shape, -torch.inf))


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Partial:
    """Queries (b, h, n, d) over keys (b, g, m, d) and values (b, g, m, e), g a divisor of h, in
    float32 or wider.

    mask: (n, m), True where a query may attend to a key. A row without keys is (0, -∞).
    """
    scores, v = _scores(upcast(q), upcast(k), mask, scale), upcast(v)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - _finite(lse)[..., None])
    return Partial((weights @ v[:, :, None]).flatten(1, 2), lse.flatten(1, 2))


def merged(one: Partial, other: Partial) -> Partial:
    """Attention over both sets of keys."""
    lse = torch.logaddexp(one.lse, other.lse)
    first, second = (torch.exp(part.lse - _finite(lse))[..., None] for part in (one, other))
    return Partial(first * one.out + second * other.out, lse)


def gradients(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    total: Partial,
    mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """What a set of keys adds to the gradients of q, k and v; ``total`` is over all the keys."""
    g, (d_out, q, k, v) = k.shape[1], map(upcast, (d_out, q, k, v))
    lse, d_out, out = (x.unflatten(1, (g, -1)) for x in (total.lse, d_out, total.out))
    weights = torch.exp(_scores(q, k, mask, scale) - _finite(lse)[..., None])
    d_weights = d_out @ v[:, :, None].mT
    d_scores = weights * (d_weights - (d_out * out).sum(-1, keepdim=True)) * scale
    d_q = (d_scores @ k[:, :, None]).flatten(1, 2)
    d_k = (d_scores.mT @ q.unflatten(1, (g, -1))).sum(2)
    return d_q, d_k, (weights.mT @ d_out).sum(2)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """(b, g, h / g, n, m): of the query heads that share each head of keys."""
    scores = q.unflatten(1, (k.shape[1], -1)) @ k[:, :, None].mT * scale
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse == -torch.inf, 0)
