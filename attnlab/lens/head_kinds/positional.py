"""How much of a head's attention weights position alone explains."""

import numpy as np
import torch
from torch import Tensor

PLACES = 128  # measured on the pairs of the first so many places of a sequence


def by_place(w: Tensor, u: Tensor, allowed: Tensor, places: Tensor) -> np.ndarray:
    """(4, h, PLACES, PLACES), see ``LayerSums``; queries with a single key are left out."""
    b, h, n, m = w.shape
    choice = allowed & (allowed.sum(dim=-1, keepdim=True) > 1)
    near = (places >= 0) & (places < PLACES)
    choice = choice & near[:, None, :, None] & near[:, None, None, :]
    at = places.clamp(0, PLACES - 1)
    index = (at[:, :, None] * PLACES + at[:, None, :]).flatten()
    sums = []
    for value in (torch.ones_like(w), w, w.square(), (w - u).square()):
        value = (value * choice).transpose(0, 1).reshape(h, b * n * m)
        sums.append(value.new_zeros(h, PLACES**2).index_add_(1, index, value))
    return torch.stack(sums).view(4, h, PLACES, PLACES).cpu().numpy()


def positional_share(
    count: np.ndarray, total: np.ndarray, squares: np.ndarray, uneven: np.ndarray
) -> np.ndarray:
    """How much of the attention weights position alone explains: (h,), each 0 to 1.

    For each pair of a query's place i and a key's place j, over all sequences, the arguments
    (h, p, p) hold the number of weights w, their sum, the sum of w² and the sum of (w − u)², where
    u is the weight that uniform attention would give to this key of this query. The share is

        1 − Σ (w − ŵ)² / Σ (w − u)²

    where ŵ is the prediction by position: the mean of all *other* weights at the same places (i, j)
    (absolute position), or at the same distance i − j (relative position); the larger of the two
    shares is taken, and less than none is 0. Leaving the weight itself out of its own prediction
    keeps a head that attends by content near 0 with few sequences, too. Pairs whose places occur
    once have no other weight and are left out, and so are queries with a single key; with one
    sequence only the distance counts. A head that attends evenly to all keys has nothing to
    explain, and gets 0.
    """
    sums = count, total, squares, uneven
    absolute = _explained(*(x.reshape(len(x), -1) for x in sums))
    relative = _explained(*map(_by_distance, sums))
    return np.maximum(absolute, relative).clip(0, 1)


def _by_distance(x: np.ndarray) -> np.ndarray:
    """Sums along the diagonals of (h, p, p): (h, 2 p − 1)."""
    p = x.shape[-1]
    return np.stack([x.trace(offset, 1, 2) for offset in range(1 - p, p)], axis=1)


def _explained(
    count: np.ndarray, total: np.ndarray, squares: np.ndarray, uneven: np.ndarray
) -> np.ndarray:
    """(h, groups) each: the share of ``uneven`` that the groups' means explain, per head."""
    others = np.maximum(count - 1, 1)
    within = (squares - total**2 / np.maximum(count, 1)) * (count / others) ** 2
    several = count > 1
    left, whole = ((x * several).sum(axis=1) for x in (within, uneven))
    even = whole <= 1e-12 * np.maximum((count * several).sum(axis=1), 1)
    return np.where(even, 0, 1 - left / np.where(even, 1, whole))
