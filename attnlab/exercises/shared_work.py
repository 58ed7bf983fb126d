"""Checks of lesson 38: parameters of two halves, a band, a near share, dynamic convolution."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import banded
from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- parameters of two halves

DIM, HEADS, KERNEL = 512, 8, 7
_HALF = (DIM // 2) ** 2

check_convolved_parameters = NumberExercise(
    "Is it the parameters of long-short range attention, dim = 512, 8 heads, k = 7, no biases?",
    right=6 * _HALF + KERNEL * HEADS // 2,
    mistakes={
        4 * DIM**2: (
            "That is full attention. Every matrix of long-short range attention is half as wide."
        ),
        4 * _HALF: "Those are the four matrices of the half that attends; the other half has two.",
        4 * _HALF + KERNEL * HEADS // 2: (
            "The half that convolves has matrices, too: one before the convolution and one after "
            "it."
        ),
        6 * _HALF: "The weights of the convolution are missing: k for each of its heads.",
        6 * _HALF + KERNEL * HEADS: "Only half of the heads convolve.",
        6 * _HALF + KERNEL * DIM // 2: (
            "The channels of a head share their k weights. That count has k for every channel."
        ),
        8 * _HALF + KERNEL * HEADS // 2: (
            "The half that convolves has no queries and no keys: two matrices, not four."
        ),
    },
)


# ---- a band


def _banded(taps: Tensor, ahead: int = 0) -> Tensor:
    """(n, n) of taps (n, k), the last of which is for the place ``ahead`` of the token."""
    return banded.dense(taps[None, None], taps.shape[1] - 1 - ahead)[0, 0]


def _band(
    w: Tensor, n: int, *, softmax: bool = True, turned: bool = False, ahead: int = 0
) -> Tensor:
    """The map of a causal lightweight convolution; every keyword is a mistake."""
    taps = w.softmax(-1) if softmax else w
    return _banded((taps.flip(0) if turned else taps).expand(n, -1), ahead)


check_band = Exercise(
    """Is it the map of a causal lightweight convolution? `band(w, n)`.

    `w` (k,) are the numbers before the softmax. It returns (n, n). Called with k = 3, n = 6.
    """,
    right=_band,
    cases=drawn(41, w=(3,), n=6),
    axes="n n",
    mistakes={
        but(turned=True): (
            "The taps are turned around: the last belongs to the token itself, the first to the "
            "earliest of the k tokens."
        ),
        but(softmax=False): "The softmax over the k weights is missing.",
        (lambda w, n: _band(w, n, ahead=len(w) // 2)): (
            "The band is centred, so that tokens see the next ones. A causal one ends at the token."
        ),
        (lambda w, n: _band(w, n).T): (
            "Rows and columns are exchanged: row i holds what token i takes from token j."
        ),
        (lambda w, n: F.normalize(_band(w, n), p=1, dim=-1)): (
            "The first rows are divided by what is left of them. The convolution leaves them as "
            "they are: what lies before the first token counts as zero."
        ),
    },
    praise="k numbers make a whole map, for any number of tokens.",
)


# ---- how much lies near


def _near(weights: Tensor, r: int) -> Tensor:
    """The mean over rows of the weight at distances 0 to r - 1."""
    i = torch.arange(len(weights))
    far = i[:, None] - i
    return (weights * ((far >= 0) & (far < r))).sum(-1).mean()


def _near_share_cases() -> Iterator[Arguments]:
    (scores,) = random_tensors((7, 7), seed=42)
    blocked = torch.ones(7, 7).triu(1).bool()
    weights = scores.masked_fill(blocked, -torch.inf).softmax(-1)
    yield {"weights": weights, "r": 3}


check_near_share = Exercise(
    """Is it the mean share of attention on the newest r tokens? `near(weights, r)`.

    `weights` (n, n) is a causal map whose rows have the sum 1. The newest r tokens of a row are the
    token itself and the r − 1 before it. It returns one number. Called with n = 7, r = 3.
    """,
    right=_near,
    cases=_near_share_cases,
    axes="",
    mistakes={
        (lambda weights, r: _near(weights, r + 1)): (
            "It counts the distances 0 to r, which are r + 1 tokens."
        ),
        (lambda weights, r: _near(weights, r) - weights.diagonal().mean()): (
            "It leaves the token itself out: its distance is 0."
        ),
        (lambda weights, r: _near(weights, r + 1) - weights.diagonal().mean()): (
            "It leaves the token itself out: the newest r tokens are the token itself and the r − "
            "1 before it."
        ),
        (
            lambda weights, r: (
                (_near(weights, r) * len(weights) - weights[: r - 1].sum()) / (len(weights) - r + 1)
            )
        ): (
            "Only rows with r tokens or more are averaged; the first rows have all their weight "
            "near, and belong to the mean."
        ),
        (
            lambda weights, r: (
                (_near(weights, r) * len(weights) - weights[:r].sum()) / (len(weights) - r)
            )
        ): (
            "Only rows with more than r tokens are averaged; the first r rows have all their "
            "weight near, and belong to the mean."
        ),
        (lambda weights, r: _near(weights, r) * len(weights)): (
            "That is the sum over all rows; divide by the number of rows."
        ),
        (lambda weights, r: _near(weights, r) / len(weights)): (
            "That is divided by all n × n entries. Each row has the sum 1, so divide by n."
        ),
        (lambda weights, r: _near(weights.T, r)): (
            "The distance is the wrong way round: the key j stands before the query i."
        ),
    },
    praise="A share says something only beside the share that equal weights would have.",
)


# ---- a layer of dynamic convolution


def _dynamic(
    x: Tensor, W: Tensor, V: Tensor, Wq: Tensor, Wo: Tensor, h: int, k: int, *,
    source: str = "gated", gate: Callable[[Tensor], Tensor] = torch.sigmoid, swapped: bool = False,
    tap_major: bool = False, interleaved: bool = False, softmax: int = -1, turned: bool = False,
    output: bool = True, of_key: bool = False,
) -> Tensor:  # fmt: skip
    """The causal layer; every keyword is a mistake."""
    a, b = x @ W, x @ V
    u = gate(a) * b if swapped else a * gate(b)
    logits = ({"gated": u, "input": x, "plain": a}[source]) @ Wq
    taps = logits.unflatten(1, (k, h)).mT if tap_major else logits.unflatten(1, (h, k))
    taps = taps.softmax(softmax)  # (n, h, k)
    heads = u.unflatten(1, (-1, h)).mT if interleaved else u.unflatten(1, (h, -1))
    taps = taps.flip(2) if turned or of_key else taps
    maps = [_banded(taps[:, head], k - 1 if of_key else 0) for head in range(h)]
    maps = [map_.T if of_key else map_ for map_ in maps]
    mixed = torch.stack([m @ heads[:, head] for head, m in enumerate(maps)], dim=1)
    y = (mixed.mT if interleaved else mixed).flatten(1)
    return y @ Wo if output else y


def _dynamic_layer_cases() -> Iterator[Arguments]:
    names, shapes = ("x", "W", "V", "Wq", "Wo"), ((7, 6), (6, 6), (6, 6), (6, 6), (6, 6))
    yield dict(zip(names, random_tensors(*shapes, seed=43), strict=True)) | {"h": 2, "k": 3}


check_dynamic_layer = Exercise(
    """Is it a causal layer of dynamic convolution? `layer(x, W, V, Wq, Wo, h, k)`.

    `x` is (n, dim), `W`, `V` and `Wo` are (dim, dim), `Wq` is (dim, h · k), all applied as `x @ W`.
    u = x W ⊙ σ(x V); head by head, the k weights of a token are the softmax of its numbers u W_q,
    the last of them for the token itself. It returns (n, dim). Called with n = 7, dim = 6, h = 2,
    k = 3.
    """,
    right=_dynamic,
    cases=_dynamic_layer_cases,
    axes="n dim",
    mistakes={
        but(source="input"): (
            "The weights are computed from the input. They are computed from the gated input u."
        ),
        but(source="plain"): (
            "The weights are computed from x W, before the gate. They are computed from u."
        ),
        but(gate=torch.ones_like): "The gate is missing: u = x W ⊙ σ(x V).",
        but(gate=torch.clone): "The gate lacks the logistic function: σ(x V).",
        but(swapped=True): "Gate and content are exchanged: σ stands on x V.",
        but(tap_major=True): (
            "The h · k numbers are divided the wrong way: the first k belong to the first head."
        ),
        but(interleaved=True): (
            "The channels of a head are consecutive: the first dim / h belong to the first head."
        ),
        but(softmax=1): "The softmax runs over the heads. Each head's k weights have the sum 1.",
        but(turned=True): (
            "The taps are turned around: the last of the k belongs to the token itself."
        ),
        but(of_key=True): (
            "The weights are those of the token that is read. The token that reads chooses them."
        ),
        but(output=False): "The output matrix is missing.",
    },
    praise="A token chooses how much it takes from each distance, and compares nothing.",
)
