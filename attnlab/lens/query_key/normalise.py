r"""Bring queries and keys of a head into one space without changing its attention.

Two changes are free (Yeh, Chen, Wu, Chen, Viégas, Wattenberg, AttentionViz, IEEE VIS 2023,
arXiv:2305.03210, section 5.1.1):

- *opposite scaling*, $q \to c\,q$, $k \to k / c$: every product $q \cdot k$ stays what it is;
- *translation of the keys*, $k \to k + t$: row i of the scores gains the constant $q_i \cdot t$,
  which the softmax removes. Queries must not be translated: that would add $t \cdot k_j$, which
  differs from key to key.

Scaling comes first: $k' = k / c + t$ with $t = \text{mean}(c\,q) - \text{mean}(k / c)$, so that
both clouds end with one centroid. In the other order the scaling would move the centroids apart
again.

The factor c is chosen so that near means attended. By the paper's search ("correlation") it is the
one of seven candidates whose distances correlate best (most negatively) with q·k, near pairs of the
whole head weighing most; by the ratio of norms ("norms") it is the one that makes queries and keys
equally long on average. The paper's search looks at pairs that never met, and its answer can jump
from one end of the candidates to the other when a few sequences are added. So the default,
"attention", takes of all these factors the one with which most of each query's strongest keys are
among its nearest, in its own sequence and in the full space. That is often the smallest: as c goes
to 0 the cosine of q' and k' becomes that of q and k - mean(k), and q · (k - mean(k)) orders the
keys of a query exactly as q·k does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnlab.core.suggest import check_choice

CANDIDATES = (0.2, 0.4, 0.8, 1.0, 1.25, 2.5, 5.0)
SCALINGS = ("attention", "correlation", "norms", "none")
METRICS = ("cosine", "euclidean")
NEAR = 0.005
"""Pairs nearer than this share of all pairs weigh in the correlation."""
_MOST = 1000  # queries and keys that are sampled for the search


Kept = Callable[[np.ndarray, np.ndarray], float]
"""From normalised queries and keys to the share of the attention that their distances keep."""


@dataclass(frozen=True, eq=False)
class Normalisation:
    """q → factor · q, k → k / factor + shift."""

    factor: float
    shift: np.ndarray

    def queries(self, q: np.ndarray) -> np.ndarray:
        """(N, d) -> (N, d)."""
        return np.asarray(q * self.factor)

    def keys(self, k: np.ndarray) -> np.ndarray:
        """(M, d) -> (M, d)."""
        return np.asarray(k / self.factor + self.shift)


def normalisation(
    q: np.ndarray,
    k: np.ndarray,
    scaling: str,
    metric: str = "cosine",
    kept: Kept | None = None,
) -> Normalisation:
    """The normalisation of one head's queries (N, d) and keys (M, d).

    ``scaling`` is "correlation" (the paper's search; on at most 1,000 queries and keys, evenly
    spread), "norms" (the ratio of mean norms), "none", or "attention": the factor with the largest
    ``kept``, which is needed then. ``metric`` is the distance that the search correlates, "cosine"
    or "euclidean".
    """
    check_choice("scaling", scaling, SCALINGS)
    check_choice("metric", metric, METRICS)
    if scaling == "none":
        return _centred(q, k, 1.0)
    if scaling == "norms":
        return _centred(q, k, _by_norms(q, k))
    if scaling == "attention":
        return _keeping(q, k, kept)
    some_q, some_k = _spread(q), _spread(k)
    products = some_q @ some_k.T
    found = [
        weighted_correlation(products, _distances(some_q, some_k, c, metric)) for c in CANDIDATES
    ]
    best = int(np.argmin(found)) if np.isfinite(found).any() else CANDIDATES.index(1.0)
    return _centred(q, k, CANDIDATES[best])


def weighted_correlation(products: np.ndarray, distances: np.ndarray) -> float:
    """The correlation of q·k with distance, each pair weighted by (D - distance)² below D.

    D is the distance below which 0.5 % of all pairs lie. inf where it is not defined, because the
    products or the distances of the near pairs do not differ.
    """
    x, y = products.ravel(), distances.ravel()
    near = max(2, int(NEAR * y.size))
    if y.size <= near:
        return float("inf")
    order = np.argpartition(y, near)
    limit, rows = y[order[near]], order[:near]
    x, y = x[rows].astype(np.float64), y[rows].astype(np.float64)
    w = (limit - y) ** 2
    total = w.sum()
    if total <= 0:
        return float("inf")
    w = w / total
    x, y = x - w @ x, y - w @ y
    spread = (w @ x**2) * (w @ y**2)
    return float(w @ (x * y) / np.sqrt(spread)) if spread > 0 else float("inf")


def distances(x: np.ndarray, y: np.ndarray, metric: str = "cosine") -> np.ndarray:
    """(N, d), (M, d) -> (N, M): cosine distance (0 to 2; 1 from a vector of zeros) or Euclidean."""
    if metric == "cosine":
        return np.asarray(1 - unit(x) @ unit(y).T)
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T
    return np.sqrt(np.maximum(squares, 0))


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays."""
    norms = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(x / np.where(norms == 0, 1, norms))


def _distances(q: np.ndarray, k: np.ndarray, factor: float, metric: str) -> np.ndarray:
    change = _centred(q, k, factor)
    return distances(change.queries(q), change.keys(k), metric)


def _centred(q: np.ndarray, k: np.ndarray, factor: float) -> Normalisation:
    return Normalisation(factor, (q * factor).mean(axis=0) - (k / factor).mean(axis=0))


def _keeping(q: np.ndarray, k: np.ndarray, kept: Kept | None) -> Normalisation:
    """Equal norms, unless another factor keeps more."""
    if kept is None:
        raise ValueError('scaling="attention" needs `kept`, which says how much a factor keeps')
    changes = [_centred(q, k, c) for c in (_by_norms(q, k), *CANDIDATES)]
    shares = np.array([kept(change.queries(q), change.keys(k)) for change in changes])
    return changes[int(np.argmax(np.nan_to_num(shares)))]


def _by_norms(q: np.ndarray, k: np.ndarray) -> float:
    long, short = (np.linalg.norm(x, axis=1).mean() for x in (k, q))
    return float(np.sqrt(long / short)) if long > 0 and short > 0 else 1.0


def _spread(x: np.ndarray) -> np.ndarray:
    if len(x) <= _MOST:
        return x
    return x[np.linspace(0, len(x) - 1, _MOST).round().astype(int)]
