"""Decoding under a pattern: the next tokens, with the past keys that are still needed.

``Pattern.covers`` finds by interval arithmetic whether any later query attends to a key; a key that
none attends to is dropped from the state. With a window the state has as many keys as the window is
wide; with a stride it has all past keys.
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
    """Keys and values still needed, their positions, and the number of tokens so far."""

    past: KeyValueCache
    places: Int[Tensor, "t"]
    length: int


@checked
def step(
    q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"], v: Float[Tensor, "b h t e"],
    pattern: Pattern, state: DecodingState | None = None,
) -> tuple[Float[Tensor, "b h t e"], DecodingState]:  # fmt: skip
    """Attention of the next t tokens under a causal pattern, and the state after them.

    Equals the last t rows of the parallel form. The pattern must be causal and must not depend on
    the length; whether it allows later keys is not checked.
    """
    past, places, length = state or (None, torch.arange(0), 0)
    new = torch.arange(length, length + q.shape[2])
    past, places = KeyValueCache.extended(past, k, v), torch.cat((places, new))
    seen = _attend(q, past, pattern.allows(new[:, None], places[None, :]))
    length += len(new)
    rows = Intervals(*(torch.tensor(x) for x in (length, FAR, 1)))
    needed = pattern.covers(rows, Intervals.singles(places)).some
    return seen, DecodingState(_selected(past, needed), places[needed], length)


def _attend(q: Tensor, past: KeyValueCache, allowed: Tensor) -> Tensor:
    """Attention of the queries, over the keys that at least one of them attends to."""
    seen = allowed.flatten(0, -2).any(0)
    keys, values = _selected(past, seen)
    note("keys", keys)
    note("values", values)
    mask = note("mask", allowed[..., seen].to(q.device))
    if not keys.shape[2]:
        return q.new_zeros(*q.shape[:-1], values.shape[-1])
    scores = q @ keys.mT * q.shape[-1] ** -0.5
    return masked_softmax(scores, mask) @ values


def _selected(past: KeyValueCache, chosen: Tensor) -> KeyValueCache:
    if chosen.all():
        return past
    at = chosen.nonzero().squeeze(-1).to(past.keys.device)
    return KeyValueCache(*(x.index_select(2, at) for x in past))
