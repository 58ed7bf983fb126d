"""Which head a view of many heads shows first, and which query of it.

A head is worth a look first if its queries attend to few other tokens: then the sums of their
squared weights are large. The weight of a token to itself is left out, because the first query of a
causal map has no other key and gives itself 1 in every head.
"""

import numpy as np
from numpy.typing import NDArray

from attnlab.core.arrays import Array


def sharpness(maps: Array) -> NDArray[np.float64]:
    """(h,) how sharply each of the maps (h, n, m) points at other tokens: the mean over queries of
    the sum of their squared weights."""
    found: NDArray[np.float64] = np.square(_others(maps)).sum(-1).mean(-1)
    return found


def telling_query(weights: Array) -> int:
    """The query of a map (n, m) with the largest weight to another token, of those that give
    themselves less than that; of all where every token attends most to itself."""
    others = _others(weights[None])[0].max(-1)
    leads = others >= weights.max(-1)
    return int(np.where(leads | ~leads.any(), others, -np.inf).argmax())


def _others(maps: Array) -> NDArray[np.float64]:
    """The maps (h, n, m) without the weights of tokens to themselves. With fewer queries than keys
    the queries are the last positions."""
    n, m = maps.shape[1:]
    own = np.eye(n, m, m - n, dtype=bool) if n <= m else np.zeros((n, m), bool)
    return np.where(own, 0, maps).astype(np.float64)
