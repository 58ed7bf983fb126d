r"""Attention by features: a mean weighted by dot products of features, three ways round.

With features $\phi(q)$, $\phi(k)$ in place of a softmax,

$$o_i = \frac{\sum_{j \in S_i} \phi(q_i)\cdot\phi(k_j)\; v_j}{\sum_{j \in S_i}
\phi(q_i)\cdot\phi(k_j)} = \frac{\phi(q_i)^\top \sum_{j \in S_i} \phi(k_j)\, v_j^\top}
{\phi(q_i)^\top \sum_{j \in S_i} \phi(k_j)},$$

$S_i$ all keys, or causally those up to i. On the left stand n × m weights; on the right only two
running sums, of one size whatever the length.

Features come in already applied, of either sign, and of any scale: a factor per query, or one for
all keys of a head, cancels. A key whose features are all zero is not there, which is how padding is
said. Nothing is added to a denominator; a row of weights that sums to exactly zero gives zeros.
Half precisions are summed in float32, and the output has the dtype of the values. With fewer
queries than keys, the queries are the last.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.probe import note
from attnlab.core.shapes import autocasts


class Sums(NamedTuple):
    """What a query needs to know of all keys so far: Σ φ(k) vᵀ and Σ φ(k)."""

    values: Float[Tensor, "b h r e"]
    keys: Float[Tensor, "b h r"]

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        return Sums(self.values + other.values, self.keys + other.keys)


def quadratic(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h m r"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The left side: n × m weights, noted as "weights", times the values."""
    with unrounded(v.device):
        wide_q, wide_k, wide_v = widened(q, k, v)
        scores = wide_q @ wide_k.mT
        if causal:
            scores = scores * patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
        weights = note("weights", scores * reciprocal(scores.sum(dim=-1, keepdim=True)))
        return (weights @ wide_v).to(v.dtype)


def recurrent(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h m r"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The right side as an RNN: add one key and value to the sums, then let one query read them.

    Notes the sums after the last key as "state".
    """
    n, m = q.shape[-2], k.shape[-2]
    lasts = range(m - n, m) if causal else [m - 1] * n  # the last key that each query sees
    with unrounded(v.device):
        queries, keys, values = (x.split(1, dim=-2) for x in widened(q, k, v))
        state, seen, out = nothing(keys[0], values[0]), 0, []
        for query, last in zip(queries, lasts, strict=True):
            while seen <= last:
                state, seen = state + summed(keys[seen], values[seen]), seen + 1
            out.append(read(query, state))
        note("state", state)
        return torch.cat(out, dim=-2).to(v.dtype)


def chunked(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h m r"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    chunk: int = 64,
) -> Float[Tensor, "b h n e"]:
    """The right side, many tokens at once: by one sum, or causally by ``advance``.

    Notes the sums after the last key as "state".
    """
    n, m = q.shape[-2], k.shape[-2]
    if not causal:
        with unrounded(v.device):
            wide_q, wide_k, wide_v = widened(q, k, v)
            return read(wide_q, note("state", summed(wide_k, wide_v))).to(v.dtype)
    if n > m:  # the first n - m queries see nothing: as if there were keys without features
        k, v, m = F.pad(k, (0, 0, n - m, 0)), F.pad(v, (0, 0, n - m, 0)), n
    with unrounded(v.device):
        past = summed(*widened(k[..., : m - n, :], v[..., : m - n, :]))
    out, state = advance(q, k[..., m - n :, :], v[..., m - n :, :], past, chunk=chunk)
    note("state", state)
    return out


def advance(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h n r"],
    v: Float[Tensor, "b h n e"],
    past: Sums | None = None,
    *,
    chunk: int = 64,
) -> tuple[Float[Tensor, "b h n e"], Sums]:
    """n further tokens, causally, after those that ``past`` has summed; and the sums after them.

    Within a chunk by its chunk × chunk weights, from chunk to chunk by the sums: the largest tensor
    has length × max(r, e, chunk, r·e / chunk) elements per head.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    n = q.shape[-2]
    chunk = min(chunk, n)
    with unrounded(v.device):
        wide = (F.pad(x, (0, 0, 0, -n % chunk)) for x in widened(q, k, v))
        wide_q, wide_k, wide_v = (x.unflatten(-2, (-1, chunk)) for x in wide)
        each = summed(wide_k, wide_v)
        past = nothing(wide_k[:, :, 0], wide_v[:, :, 0]) if past is None else past
        before = Sums(_before(past.values, each.values), _before(past.keys, each.keys))
        scores = (wide_q @ wide_k.mT).tril()
        values = scores @ wide_v + wide_q @ before.values
        total = scores.sum(dim=-1, keepdim=True) + wide_q @ before.keys[..., None]
        out = (values * reciprocal(total)).flatten(2, 3)[..., :n, :]
        after = Sums(before.values[:, :, -1], before.keys[:, :, -1])
        return out.to(v.dtype), after + Sums(each.values[:, :, -1], each.keys[:, :, -1])


def _before(past: Tensor, each: Tensor) -> Tensor:
    """The sums before every chunk. Never by subtracting a chunk from the sums after it: what is
    rounded away there is news from the future."""
    return torch.cat((past[:, :, None], each[:, :, :-1]), dim=2).cumsum(dim=2)


# ---- what the three are made of


def nothing(k: Float[Tensor, "... n r"], v: Float[Tensor, "... n e"]) -> Sums:
    """The sums before the first key."""
    values = v.new_zeros(*v.shape[:-2], k.shape[-1], v.shape[-1])
    return Sums(values, values[..., 0].clone())


def summed(k: Float[Tensor, "... n r"], v: Float[Tensor, "... n e"]) -> Sums:
    return Sums(k.mT @ v, k.sum(dim=-2))


def read(q: Float[Tensor, "... n r"], state: Sums) -> Float[Tensor, "... n e"]:
    """What queries get that see exactly the keys in ``state``."""
    return q @ state.values * reciprocal(q @ state.keys[..., None])


def reciprocal(total: Tensor) -> Tensor:
    """1 / total, and 0 for 0, in values and in gradients."""
    empty = total == 0
    return (1 / (total + empty)).masked_fill(empty, 0)


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Half precisions as float32: a long sum in bfloat16 stops growing at 256 times its terms."""
    wide = max((x.dtype for x in tensors), key=lambda dtype: dtype.itemsize)
    wide = torch.float32 if wide.itemsize < 4 else wide
    return tuple(x.to(wide) for x in tensors)


def unrounded(device: torch.device) -> AbstractContextManager[Any]:
    """Without autocast, which would round every product to half precision behind our back."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()
