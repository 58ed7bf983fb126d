"""Checks of lesson 16: a gap between two scores, sparsemax, a soft mask, and sparse attention."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise

# ---- the gap

check_gap = NumberExercise(
    "Is it how far behind the second of two scores gets the weight 0, for α = 1.25?",
    right=1 / (1.25 - 1),
    mistakes={
        0.25: "That is α − 1. The scores are multiplied by it, so the gap is its inverse.",
        1.0: "That is the gap of sparsemax, α = 2.",
        2.0: "That is the gap of 1.5-entmax.",
        0.8: "That is 1/α; the threshold has (α − 1) z in it.",
        1.25: "That is α itself.",
    },
)


# ---- sparsemax


def _sparsemax(z: Tensor, *, total: float = 1.0) -> Tensor:
    ordered = z.sort(descending=True).values
    tau = (ordered.cumsum(0) - total) / torch.arange(1, len(z) + 1)
    return (z - tau[(ordered > tau).sum() - 1]).clamp_min(0)


def _of_all(z: Tensor) -> Tensor:
    return (z - (z.sum() - 1) / len(z)).clamp_min(0)


def _sparsemax_cases() -> Iterator[Arguments]:
    (z,) = random_tensors((7,), seed=2)
    for spread in (1.0, 0.1, 20.0):
        yield {"z": z * spread}


check_sparsemax = Exercise(
    """Is it sparsemax of one row? `sparsemax(z)`, `z` (m,), returns the weights (m,).

    Called with 7 scores of several spreads, of which 1 to 7 get a weight.
    """,
    right=_sparsemax,
    cases=_sparsemax_cases,
    axes="m",
    mistakes={
        _of_all: (
            "The threshold is that of all scores: find the largest k whose k-th score is above its "
            "own threshold."
        ),
        (lambda z: z - (z - _sparsemax(z)).max()): (
            "That is it without the clamp: scores below the threshold have the weight 0."
        ),
        (lambda z: _entmax15(z)): "That is 1.5-entmax: it has z/2 and a square.",
        (lambda z: z.softmax(0)): "That is a softmax: all weights are above zero.",
        (lambda z: z.clamp_min(0) / z.clamp_min(0).sum()): (
            "The weights are divided by their sum after a clamp at 0. The threshold alone makes "
            "them sum to one."
        ),
        (lambda z: _sparsemax(z, total=2)): (
            "The sum is 2: is 1 subtracted before the division by k?"
        ),
    },
    praise="One threshold, and what is below it is exactly zero.",
)


# ---- a soft mask


def _soft_mask(distances: Tensor, z: float, ramp: float) -> Tensor:
    return ((ramp + z - distances) / ramp).clamp(0, 1)


def _soft_mask_cases() -> Iterator[Arguments]:
    for z, ramp in ((5.0, 4.0), (2.5, 3.0)):
        yield {"distances": torch.arange(1.0, 14.0), "z": z, "ramp": ramp}


check_soft_mask = Exercise(
    """Is it the soft mask of a span? `soft_mask(distances, z, ramp)`, `distances` (m,).

    `z` is the span and `ramp` the width R of its ramp, both in tokens; it returns (m,).
    """,
    right=_soft_mask,
    cases=_soft_mask_cases,
    axes="m",
    mistakes={
        (lambda x, z, ramp: (ramp + z - x) / ramp): (
            "It is a straight line everywhere: `clamp` it, so that it stays between 0 and 1."
        ),
        (lambda x, z, ramp: ((ramp + z - x) / ramp).clamp_min(0)): (
            "It may be above 1: clamp it at both ends."
        ),
        (lambda x, z, ramp: ((ramp + z - x) / ramp).clamp_max(1)): (
            "It may be below 0: clamp it at both ends."
        ),
        (lambda x, z, ramp: _soft_mask(x, z - ramp, ramp)): (
            "The ramp should begin at z, and not end there."
        ),
        (lambda x, z, ramp: (x <= z) * 1.0): (
            "That is a hard window: between z and z + R the mask falls from 1 to 0."
        ),
        (lambda x, z, ramp: 1 - _soft_mask(x, z, ramp)): (
            "It is 0 near the query and 1 far away: the sign of the distance is wrong."
        ),
        (lambda x, z, ramp: ((ramp + z - x) / z).clamp(0, 1)): (
            "It falls by z tokens: divide by the ramp."
        ),
    },
    praise="1 up to the span, then a straight line to 0.",
)


# ---- causal attention by 1.5-entmax


def _entmax15(z: Tensor) -> Tensor:
    x = z / 2
    ordered, k = x.sort(dim=-1, descending=True).values, torch.arange(1, x.shape[-1] + 1)
    mean = ordered.cumsum(-1) / k
    spread = ordered.square().cumsum(-1) - k * mean**2
    tau = mean - ((1 - spread) / k).clamp_min(0).sqrt()
    size = (ordered > tau).sum(-1, keepdim=True)
    return (x - tau.gather(-1, size - 1)).clamp_min(0) ** 2


def _causal(
    q: Tensor, k: Tensor, v: Tensor, *,
    strict: bool = False, after: bool = False, scaled: bool = True, half: bool = True,
) -> Tensor:  # fmt: skip
    """The attention; a known mistake changes one of the steps."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scaled else 1) * (1 if half else 2)
    rows = []
    for i, row in enumerate(scores):
        last = max(i, 1) if strict else i + 1
        weights = _entmax15(row)[:last] if after else _entmax15(row[:last])
        rows.append(weights @ v[:last])
    return torch.stack(rows)


def _entmax_attention_cases() -> Iterator[Arguments]:
    q, k, v = random_tensors((11, 5), (11, 5), (11, 3), seed=4)
    for factor in (1.0, 4.0):
        yield {"q": q * factor, "k": k, "v": v}


check_entmax_attention = Exercise(
    """Is it causal 1.5-entmax attention? `attend(q, k, v)`, with `q`, `k` (n, d) and `v` (n, e).

    It returns (n, e). Called with n = 11, d = 5, e = 3, with gentle and with sharp scores.
    """,
    right=_causal,
    cases=_entmax_attention_cases,
    axes="n e",
    mistakes={
        (lambda q, k, v: _causal(q, k, v, scaled=False)): (
            "The scores are not scaled: multiply them by 1/√d."
        ),
        (lambda q, k, v: _causal(q, k, v, after=True)): (
            "The future is cut off after the weights were computed, so rows do not sum to one: set "
            "its scores to −∞ before."
        ),
        (lambda q, k, v: _causal(q, k, v, half=False)): (
            "The scores are not halved: x = z / 2 for α = 1.5."
        ),
        (lambda q, k, v: _causal(q, k, v, strict=True)): "A token attends to itself, too: j ≤ i.",
        (lambda q, k, v: _entmax15(q @ k.mT * q.shape[-1] ** -0.5) @ v): "There is no causal mask.",
        (
            lambda q, k, v: (
                (q @ k.mT * q.shape[-1] ** -0.5)
                .masked_fill(torch.ones(len(q), len(k)).triu(1).bool(), -torch.inf)
                .softmax(-1)
                @ v
            )
        ): ("That is a softmax."),
    },
    praise="Each row has a threshold of its own, and most of the past has the weight 0.",
)
