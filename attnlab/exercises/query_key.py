"""Checks of lesson 60: keys moved to the queries, and the strongest keys among the nearest."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise

# ---- the moved keys

Move = Callable[[Tensor, Tensor, float], Tensor]


def _moved(q: Tensor, k: Tensor, c: float) -> Tensor:
    return k / c + c * q.mean(0) - (k / c).mean(0)


def _moved_keys_cases() -> Iterator[Arguments]:
    q, k = random_tensors((7, 3), (5, 3))
    for c in (2.5, 0.4):
        yield {"q": q + 2, "k": 3 * k - 1, "c": c}


check_moved_keys = Exercise(
    "Are the keys scaled, then translated? `moved_keys(q (n, d), k (m, d), c) -> (m, d)`.",
    right=_moved,
    cases=_moved_keys_cases,
    axes="m d",
    mistakes={
        (lambda q, k, c: k / c): (
            "The keys are only divided by c. Translate them, too: their centroid should be that of "
            "the scaled queries."
        ),
        (lambda q, k, c: (k + q.mean(0) - k.mean(0)) / c): (
            "The keys are moved first and divided afterwards, which moves their centroid again. "
            "Scale first, then translate."
        ),
        (lambda q, k, c: k / c + q.mean(0) - k.mean(0)): (
            "The translation is that of the vectors before they were scaled. Take both centroids "
            "after the scaling: of c q and of k / c."
        ),
        (lambda q, k, c: k / c + q.mean(0) - (k / c).mean(0)): (
            "The centroid of the queries is that before the scaling. The queries become c q."
        ),
        (lambda q, k, c: k * c + c * q.mean(0) - (k * c).mean(0)): (
            "The keys are multiplied by c, like the queries; then every product grows by c². "
            "Divide."
        ),
        (lambda q, k, c: k / c - c * q.mean(0) + (k / c).mean(0)): (
            "The keys moved away from the queries: exchange the two centroids in the difference."
        ),
        (lambda q, k, c: k / c + c * q.mean() - (k / c).mean()): (
            "The centroid is one number here, the mean over all numbers. It is a vector: the mean "
            "over the rows (axis 0)."
        ),
    },
    praise="The products change by one number per query, and the two centroids are one.",
)


# ---- the strongest among the nearest


def _chosen(values: Tensor, k: int, *, largest: bool) -> Tensor:
    """(n, m): True at the k largest or smallest of each row."""
    which = values.topk(k, dim=-1, largest=largest).indices
    return torch.zeros_like(values).scatter(-1, which, 1.0)


def _both(scores: Tensor, apart: Tensor, k: int, *, near: bool = True) -> Tensor:
    return _chosen(scores, k, largest=True) * _chosen(apart, k, largest=not near)


def _top_share(scores: Tensor, apart: Tensor, k: int) -> Tensor:
    return _both(scores, apart, k).sum(-1) / k


def _jaccard(scores: Tensor, apart: Tensor, k: int) -> Tensor:
    common = _both(scores, apart, k).sum(-1)
    return common / (2 * k - common)


def _columns(scores: Tensor, apart: Tensor, k: int) -> Tensor:
    return _top_share(scores.T, apart.T, k)


def _top_share_cases() -> Iterator[Arguments]:
    scores, noise = random_tensors((11, 11), (11, 11), seed=1)
    for k in (3, 5):
        yield {"scores": scores, "apart": (noise - scores).exp(), "k": k}


check_top_share = Exercise(
    "Is it the share for each query? `top_share(scores (n, m), apart (n, m), k) -> (n)`.",
    right=_top_share,
    cases=_top_share_cases,
    axes="n",
    mistakes={
        (lambda scores, apart, k: _both(scores, apart, k, near=False).sum(-1) / k): (
            "These are the farthest keys. A query's neighbours have the smallest distances."
        ),
        (lambda scores, apart, k: _both(scores, apart, k).sum(-1)): (
            "This counts the common keys. Divide by k for a share."
        ),
        (lambda scores, apart, k: _both(scores, apart, k).mean(-1)): (
            "The common keys are divided by all keys of the row. Divide by k."
        ),
        _jaccard: (
            "The common keys are divided by the union of both sets. Divide by k: how many of the "
            "strongest keys are among the nearest?"
        ),
        _columns: (
            "This takes the strongest queries of each key. A row is a query: choose along the last "
            "axis."
        ),
        (
            lambda scores, apart, k: (
                (scores.topk(k).indices == apart.topk(k, largest=False).indices).double().mean(-1)
            )
        ): (
            "This compares places in the two lists: the strongest with the nearest, the second "
            "with the second. The order inside the k does not count."
        ),
        (lambda scores, apart, k: _top_share(scores, apart, k).mean()): (
            "This is one number for all queries together. Give one for each query."
        ),
    },
    praise="For each query it is the share of the strongest keys that the map keeps near.",
)


# ---- equal lengths

check_equal_lengths = NumberExercise(
    "Is it the c that makes queries of length 2, times c, as long as keys of 18, divided by c?",
    right=math.sqrt(18 / 2),
    unit="(the factor of the queries)",
    mistakes={
        18 / 2: (
            "That is the ratio of the lengths. The queries grow by c and the keys shrink by c: "
            "both move."
        ),
        1 / 3: "That is the other direction: the keys are the longer, and they are divided by c.",
        1 / 9: "That is a ratio of the lengths, and the wrong way round. Both sides change by c.",
        math.sqrt(18 * 2): "That is the length that both have afterwards.",
    },
)
