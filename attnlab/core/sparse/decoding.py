"""Decoding under a pattern: the next tokens, and of the past only what can still be seen.

A causal pattern says of every key whether any later query will ask for it (``Pattern.covers``, by
interval arithmetic). A window forgets all but its width, a stride forgets nothing; the state is as
large as the pattern makes it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.cache import KeyValueCache
from attnlab.core.patterns import Intervals, Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax

FAR = 1 << 40  # past the end of any sequence


class DecodingState(NamedTuple):
    """Keys and values that can still be seen, where they stand, and how many tokens have come."""

    past: KeyValueCache
    places: Int[Tensor, "t"]
    length: int


@checked
def step(
    q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"], v: Float[Tensor, "b h t e"],
    pattern: Pattern, state: DecodingState | None = None,
) -> tuple[Float[Tensor, "b h t e"], DecodingState]:  # fmt: skip
    """Attention of the next t tokens under a causal pattern, and the state after them.

    Equals the rows of the parallel form. The pattern must mean the same at every length, and be
    causal: of what it says about later keys nothing is noticed.
    """
    past, places, length = state or (None, torch.arange(0), 0)
    new = torch.arange(length, length + q.shape[2])
    past, places = KeyValueCache.extended(past, k, v), torch.cat((places, new))
    seen = _attend(q, past, pattern.allows(new[:, None], places[None, :]))
    length += len(new)
    rows = Intervals(*(torch.tensor(x) for x in (length, FAR, 1)))
    needed = pattern.covers(rows, Intervals.singles(places)).some
    return seen, DecodingState(_only(past, needed), places[needed], length)


def _attend(q: Tensor, past: KeyValueCache, allowed: Tensor) -> Tensor:
    """Only the keys that some of the queries see are compared."""
    seen = allowed.flatten(0, -2).any(0)
    keys, values = _only(past, seen)
    note("keys", keys)
    note("values", values)
    mask = note("mask", allowed[..., seen].to(q.device))
    if not keys.shape[2]:
        return q.new_zeros(*q.shape[:-1], values.shape[-1])
    scores = q @ keys.mT * q.shape[-1] ** -0.5
    return masked_softmax(scores, mask) @ values


def _only(past: KeyValueCache, chosen: Tensor) -> KeyValueCache:
    if chosen.all():
        return past
    at = chosen.nonzero().squeeze(-1).to(past.keys.device)
    return KeyValueCache(*(x.index_select(2, at) for x in past))
