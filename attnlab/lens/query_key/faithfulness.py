r"""How far a map of queries and keys can be trusted, in numbers.

*Does the map keep neighbours?* **Trustworthiness** is lowered by points that are near on the map
and far in the full space, **continuity** by those that are near in the full space and far on the
map (Venna and Kaski, Neighborhood preservation in nonlinear projection methods, ICANN 2001). Each
counts, for k nearest neighbours of N points, by how many ranks the wrong ones miss:

$$T = 1 - \frac{2}{N k (2N - 3k - 1)} \sum_i \sum_{j \in U_i} (r(i, j) - k),$$

1 for a perfect map; a random one has about 0.5.

*Does near mean attended?* Within its own sequence, and among the keys that it may attend to:
**rank_correlation** is Spearman's, of map distance with score, for each query, then averaged (-1:
the nearer, the larger the score), and **full_correlation** the same with the distance in the full
space, before any projection; **top_share** the part of a query's k strongest keys that are among
its k nearest on the map, and **chance** what that part would be on a random map.

*And between sequences?* A map mixes sequences, and a query never met the keys of another one:
**other_sequences** is the part of a query's k nearest keys that belong to another sequence.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attnlab.lens.query_key.normalise import distances
from attnlab.lens.query_key.points import LayerPoints

ROWS = 500
"""So many points, evenly spread, speak for all."""
TOP = 5


@dataclass(frozen=True)
class Faithfulness:
    """The numbers of the module's docstring; NaN where one is not defined."""

    trustworthiness: float
    continuity: float
    rank_correlation: float
    full_correlation: float
    top_share: float
    chance: float
    other_sequences: float

    def sentence(self) -> str:
        """The numbers in words."""
        return (
            f"Neighbours are kept with trustworthiness {_said(self.trustworthiness)} and "
            f"continuity {_said(self.continuity)} (1 is perfect, 0.5 is chance). Distance on the "
            f"map has a rank correlation of {_said(self.rank_correlation)} with the score (−1 is "
            f"perfect; in the full space it is {_said(self.full_correlation)}). Of a query's {TOP} "
            f"strongest keys, {_share(self.top_share)} are among its {TOP} nearest in its own "
            f"sequence (by chance {_share(self.chance)}). Of its {TOP} nearest keys on the whole "
            f"map, {_share(self.other_sequences)} are from other sequences, and it never attended "
            "to them."
        )


def faithfulness(
    layer: LayerPoints,
    head: int,
    full: tuple[np.ndarray, np.ndarray],
    mapped: tuple[np.ndarray, np.ndarray],
    neighbours: int = 15,
    metric: str = "cosine",
) -> Faithfulness:
    """Compare a head's map with its normalised vectors and its scores.

    ``full`` are the normalised queries (N, d) and keys (M, d), whose distance is ``metric``;
    ``mapped`` their places on the map, whose distance is Euclidean. Trustworthiness and continuity
    are those of at most 500 points against all others.
    """
    full_all, map_all = np.concatenate(full), np.concatenate(mapped)
    rows = spread(len(full_all), ROWS)
    in_full = distances(full_all[rows], full_all, metric)
    in_map = distances(map_all[rows], map_all, "euclidean")
    correlation, share, chance = agreement(layer, head, mapped)
    in_full_space, _, _ = agreement(layer, head, full, metric)
    return Faithfulness(
        trustworthiness=kept_neighbours(in_full, in_map, rows, neighbours),
        continuity=kept_neighbours(in_map, in_full, rows, neighbours),
        rank_correlation=correlation,
        full_correlation=in_full_space,
        top_share=share,
        chance=chance,
        other_sequences=from_other_sequences(layer, mapped),
    )


def spread(count: int, most: int) -> np.ndarray:
    """At most so many of ``count`` rows, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def kept_neighbours(truth: np.ndarray, shown: np.ndarray, rows: np.ndarray, k: int) -> float:
    """Trustworthiness of ``shown``, both (R, N) distances of points ``rows`` from all N points.

    With the two exchanged it is the continuity. The rank of a neighbour is the number of points
    that are nearer to the row in truth. k is lowered to what N points allow; with fewer than 4
    points it is NaN.
    """
    count = truth.shape[1]
    k = min(k, (count - 2) // 2)
    if k < 1:
        return float("nan")
    d, s = truth.copy(), shown.copy()
    at = np.arange(len(rows))
    d[at, rows], s[at, rows] = -np.inf, np.inf  # the point itself has rank 0, and is no neighbour
    near = torch.from_numpy(s).topk(k, dim=1, largest=False).indices
    reached = torch.from_numpy(d).gather(1, near)
    ranks = torch.searchsorted(torch.from_numpy(np.sort(d, axis=1)), reached)
    missed = (ranks - k).clamp_min(0).sum().item() / len(rows)
    return 1 - 2 * missed / (k * (2 * count - 3 * k - 1))


def agreement(
    layer: LayerPoints, head: int, places: tuple[np.ndarray, np.ndarray], metric: str = "euclidean"
) -> tuple[float, float, float]:
    """(rank_correlation, top_share, chance) of distances between ``places`` (N, d) and (M, d).

    Queries that may attend to fewer than three keys have no rank correlation, those with at most
    five no share; those whose scores or distances are all alike have neither.
    """
    queries, keys = places
    correlations, hits, chances = [], [], []
    for sequence in range(layer.query_tokens.sequences):
        rows, columns = layer.query_tokens.of(sequence), layer.key_tokens.of(sequence)
        some = spread(rows.stop - rows.start, max(1, 2 * ROWS // layer.query_tokens.sequences))
        apart = distances(queries[rows][some], keys[columns], metric)
        scores = layer.scores(sequence, head)[some]
        allowed = layer.allowed(sequence, head)[some]
        correlations.append(rank_correlations(apart, scores, allowed))
        several = (allowed.sum(axis=1) > TOP) & np.isfinite(correlations[-1])
        hits.append(_overlap(apart, scores, allowed)[several])
        chances.append(TOP / allowed.sum(axis=1)[several])
    return _mean(correlations), _mean(hits), _mean(chances)


def kept_attention(
    layer: LayerPoints, head: int, metric: str
) -> Callable[[np.ndarray, np.ndarray], float]:
    """From normalised queries (N, d) and keys (M, d) to their ``top_share`` in the full space."""
    return lambda q, k: agreement(layer, head, (q, k), metric)[1]


def rank_correlations(apart: np.ndarray, scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """(n,): Spearman's correlation of each row of two (n, m) arrays, among its allowed columns."""
    x, y = (_ranks(each, allowed) for each in (apart, scores))
    count = np.maximum(allowed.sum(axis=1, keepdims=True), 1)
    x, y = (
        (each - (each * allowed).sum(axis=1, keepdims=True) / count) * allowed for each in (x, y)
    )
    norms = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    defined = (norms > 0) & (allowed.sum(axis=1) > 2)
    return np.where(defined, (x * y).sum(axis=1) / np.where(norms > 0, norms, 1), np.nan)


def pooled_correlation(
    layer: LayerPoints, head: int, places: tuple[np.ndarray, np.ndarray], metric: str = "cosine"
) -> float:
    """Spearman's correlation of distance with score over the pairs of all queries together.

    Lower than per query, as a rule: a query with long vectors has larger scores at any distance.
    """
    apart, scores = [], []
    for sequence in range(layer.query_tokens.sequences):
        rows, columns = layer.query_tokens.of(sequence), layer.key_tokens.of(sequence)
        allowed = layer.allowed(sequence, head)
        apart.append(distances(places[0][rows], places[1][columns], metric)[allowed])
        scores.append(layer.scores(sequence, head)[allowed])
    x, y = np.concatenate(apart)[None], np.concatenate(scores)[None]
    return float(rank_correlations(x, y, np.ones_like(x, dtype=bool))[0])


def from_other_sequences(layer: LayerPoints, places: tuple[np.ndarray, np.ndarray]) -> float:
    """The part of the queries' nearest keys that belong to another sequence."""
    rows = spread(len(places[0]), ROWS)
    k = min(TOP, len(places[1]))
    apart = torch.from_numpy(distances(places[0][rows], places[1], "euclidean"))
    near = apart.topk(k, dim=1, largest=False).indices.numpy()
    owners = layer.query_tokens.sequence[rows][:, None]
    return float((layer.key_tokens.sequence[near] != owners).mean())


def _ranks(values: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Ranks among the allowed of each row, ties sharing theirs; what is not allowed comes last."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(np.where(allowed, values, np.inf), axis=1))


def _overlap(apart: np.ndarray, scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """(n,): the part of the strongest keys that are among the nearest."""
    k = min(TOP, allowed.shape[1])
    strong = np.argsort(np.where(allowed, -scores, np.inf), axis=1, kind="stable")[:, :k]
    near = np.argsort(np.where(allowed, apart, np.inf), axis=1, kind="stable")[:, :k]
    return (strong[:, :, None] == near[:, None, :]).any(axis=2).mean(axis=1)


def _mean(parts: list[np.ndarray]) -> float:
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else float("nan")


def _said(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.2f}".replace("-", "−")


def _share(value: float) -> str:
    return "an undefined part" if np.isnan(value) else f"{value:.0%}".replace("%", " %")
