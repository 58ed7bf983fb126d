"""Where a view of many heads opens: the sharpest head, and its strongest pair of two tokens.

A view of 16 heads that opens on the first of them mostly opens on a fog. A head is worth a look
first whose queries attend to few other tokens: its rows have large sums of squares, to which the
token itself adds nothing here: the first query of a causal map has no other key and gives itself 1
in every head.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.core.arrays import Array


class Opening(NamedTuple):
    """What is shown first: a head, a query and the key to which it attends most, itself apart."""

    layer: int
    head: int
    query: int
    key: int


def sharpness(maps: Array) -> NDArray[np.float64]:
    """(h,) how sharply each of the maps (h, n, m) points at other tokens: the mean over queries of
    the sum of their squared weights."""
    found: NDArray[np.float64] = np.square(_others(maps)).sum(-1).mean(-1)
    return found


def strongest_pair(weights: Array) -> tuple[int, int]:
    """The query and the key of a map (n, m) with the largest weight that is not a token's own."""
    others = _others(weights[None])[0]
    query, key = np.unravel_index(int(others.argmax()), others.shape)
    return int(query), int(key)


def opening(layers: Iterable[Array]) -> Opening | None:
    """The sharpest head of all layers of maps (h, n, m), and its strongest pair; None where no head
    attends to another token. The first of several that are as sharp."""
    best: Opening | None = None
    sharpest = 0.0
    for layer, maps in enumerate(layers):
        found = sharpness(np.abs(maps))
        head = int(found.argmax())
        if found[head] > sharpest:
            sharpest = float(found[head])
            best = Opening(layer, head, *strongest_pair(np.abs(maps[head])))
    return best


def _others(maps: Array) -> NDArray[np.float64]:
    """The maps (h, n, m) without the weights of tokens to themselves. With fewer queries than keys
    the queries are the last positions."""
    n, m = maps.shape[1:]
    own = np.eye(n, m, m - n, dtype=bool) if n <= m else np.zeros((n, m), bool)
    return np.where(own, 0, maps).astype(np.float64)
