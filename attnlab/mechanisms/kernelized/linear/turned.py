"""Linear attention whose features are turned by their positions.

The numerator has turned features and the denominator those that are not (Su et al. 2021,
arXiv:2104.09864, section 3.3), so the sums of a key's features are two: turned ones times its
value, and the features alone.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.carried import reset_rows
from attnlab.core.positions import Rotation, Turn, positions_of
from attnlab.core.precision import no_autocast, upcast_together
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state
from attnlab.mechanisms.kernelized.linear.recurrence import (
    Sums,
    initial_state,
    reciprocal,
    span,
)


class TurnedSums(NamedTuple):
    """The sums Σ R φ(k) vᵀ and Σ φ(k) over all keys so far, and how many there were."""

    values: Float[Tensor, "b h r e"]
    keys: Float[Tensor, "b h r"]
    length: Int[Tensor, "b"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "TurnedSums":
        """Zeros, as at the beginning, in those sequences whose document has ``ended``."""
        return reset_rows(self, ended)


def chunked(
    q: Float[Tensor, "b h n r"], k: Float[Tensor, "b h m r"], v: Float[Tensor, "b h m e"],
    turn: Turn, *, causal: bool, chunk: int,
) -> Float[Tensor, "b h n e"]:  # fmt: skip
    """By one sum, or causally chunk by chunk; the queries are the last n."""
    n, m = q.shape[-2], k.shape[-2]
    with no_autocast(v.device):
        q, k, wide_v = upcast_together(q, k, v)
        turned_q, turned_k = turn.queries(q), turn.keys(k)
        if not causal:
            state = note("state", Sums(turned_k.mT @ wide_v, k.sum(dim=-2)))
            out = turned_q @ state.values * reciprocal(q @ state.keys[..., None])
            return out.to(v.dtype)
        # Where n < m, as if all had asked; where n > m, as if the first keys had no features.
        q, turned_q = (F.pad(x, (0, 0, max(0, m - n), 0)) for x in (q, turned_q))
        k, turned_k, wide_v = (F.pad(x, (0, 0, max(0, n - m), 0)) for x in (k, turned_k, wide_v))
        out, state = _read(q, k, turned_q, turned_k, wide_v, initial_state(k, wide_v), chunk)
    note("state", state)
    return out[:, :, out.shape[2] - n :].to(v.dtype)


def advance(
    q: Float[Tensor, "b h n r"], k: Float[Tensor, "b h n r"], v: Float[Tensor, "b h n e"],
    rotation: Rotation, past: TurnedSums | None, *, chunk: int,
) -> tuple[Float[Tensor, "b h n e"], TurnedSums]:  # fmt: skip
    """n further tokens, causally, after those of ``past``; and the sums after them."""
    with no_autocast(v.device):
        q, k, wide_v = upcast_together(q, k, v)
        count = torch.zeros(len(q), dtype=torch.int64, device=q.device)
        state = TurnedSums(*initial_state(k, wide_v), count)
        if past is not None:
            check_state(past, state)
            state = past
        at = positions_of(q.shape[2], q.device, start=state.length)
        turned_q, turned_k = rotation.queries(q, at), rotation.keys(k, at)
        out, sums = _read(q, k, turned_q, turned_k, wide_v, Sums(*state[:2]), chunk)
    return out.to(v.dtype), TurnedSums(*sums, state.length + q.shape[2])


def _read(
    q: Tensor, k: Tensor, turned_q: Tensor, turned_k: Tensor, v: Tensor, past: Sums, chunk: int
) -> tuple[Tensor, Sums]:
    """Numerators chunk by chunk, denominators from running sums of the features."""
    n, missing = v.shape[-2], -v.shape[-2] % chunk  # keys without features have no weight
    totals = past.keys[:, :, None] + k.cumsum(dim=-2)
    of_queries, of_keys, values = (F.pad(x, (0, 0, 0, missing)) for x in (turned_q, turned_k, v))
    joined = F.pad(past.values, (0, 1))  # in the last column, sums that nobody reads
    sums, joined = span(of_queries, of_keys, values, joined, chunk)
    out = sums[:, :, :n, :-1] * reciprocal((q * totals).sum(dim=-1, keepdim=True))
    return out, Sums(joined[..., :-1], totals[:, :, -1] if n else past.keys)
