"""Checks of lesson 04: what arrives from a key, the breadth of a row, ablation by the mean, and the
shares of what arrives through the output matrix."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- what arrives from a key

check_arrival_share = NumberExercise(
    """Is it the first key's share of weight × length, for the weights 0.8, 0.15 and 0.05 and values
    of the lengths 0.1, 2 and 4?""",
    right=0.8 * 0.1 / (0.8 * 0.1 + 0.15 * 2 + 0.05 * 4),
    tolerance=2e-3,
    mistakes={
        0.8: "That is its weight. How long is the value that it carries?",
        0.8 * 0.1: "That is what arrives from it. Which part is it of all that arrives?",
        25 / 29: "That is the share of the other two keys.",
        400 / 29: "That is in per cent; a share is a number from 0 to 1.",
        14.0: "That is in per cent; a share is a number from 0 to 1.",
        0.1 / (0.1 + 2 + 4): (
            "That is its part of the lengths alone. Multiply each length by its weight."
        ),
    },
)


# ---- the breadth of a row


def _entropy(row: Tensor) -> Tensor:
    return torch.special.entr(row).sum()


def _entropy_cases() -> Iterator[Arguments]:
    for weights in ([0.5, 0.25, 0.25, 0.0], [0.25] * 4, [0.7, 0.1, 0.1, 0.1]):
        row = {"row": torch.tensor(weights, dtype=torch.float64)}
        yield row


check_entropy = Exercise(
    """Is it the entropy of a row of weights in nats? `entropy(row)`, `row` (m,).

    Called with weights of which one is zero, and with uniform ones.
    """,
    right=_entropy,
    cases=_entropy_cases,
    axes="",
    mistakes={
        (lambda row: _entropy(row) / math.log(2)): (
            "Those are bits. Nats take the natural logarithm."
        ),
        (lambda row: _entropy(row) / math.log(10)): (
            "That is the logarithm to the base 10. Nats take the natural one."
        ),
        (lambda row: -_entropy(row)): "The logarithm of a share is negative: change the sign.",
        (lambda row: _entropy(row) / math.log(len(row))): (
            "It is divided by its largest value; the entropy itself is asked for."
        ),
        (lambda row: -(row * row.log()).sum()): (
            "0 · ln 0 became NaN: a weight of zero adds nothing. Leave the zeros out first."
        ),
        (lambda row: -row[row > 0].log().sum()): (
            "The logarithms are not multiplied by the weights."
        ),
        (lambda row: _entropy(row) / len(row)): (
            "It takes the mean over the keys; entropy is a sum."
        ),
    },
    praise="Zero for one key, ln m for m keys of equal weight.",
)


# ---- ablation by the mean


def _ablated(
    out: Tensor, w: Tensor, a: int, *,
    put: Callable[[Tensor], Tensor] = lambda own: own.mean(0, keepdim=True),
    join: Callable[[Tensor], Tensor] = lambda out: out.transpose(0, 1).flatten(1),
    of: int = 0,
) -> Tensor:  # fmt: skip
    changed = out.clone()
    changed[a + of] = put(out[a + of]).expand_as(out[a])
    return join(changed) @ w


def _mean_ablation_cases() -> Iterator[Arguments]:
    out, w = random_tensors((3, 5, 2), (6, 7), seed=17)
    for a in (1, 2):
        yield {"out": out + 1, "W": w, "a": a}


check_mean_ablation = Exercise(
    """Is head a replaced by its mean over the positions? `ablated(out, W, a) -> (n, dim)`.

    `out` (h, n, e) are the outputs of the heads, `W` (h · e, dim) is the output matrix. Called with
    h = 3, n = 5, e = 2, dim = 7, a = 1 and 2.
    """,
    right=_ablated,
    cases=_mean_ablation_cases,
    axes="n dim",
    mistakes={
        (lambda out, w, a: _ablated(out, w, a, put=lambda own: 0 * own)): (
            "The head's output became zero. The mean over the positions is asked for: the model "
            "has met such vectors, and never a zero."
        ),
        (lambda out, w, a: _ablated(out, w, a, put=lambda own: own)): (
            "The head is still there: nothing was replaced."
        ),
        (lambda out, w, a: _ablated(out, w, a, put=lambda own: own.mean(1, keepdim=True))): (
            "The mean runs over the width: it is one vector, the mean over the positions."
        ),
        (lambda out, w, a: _ablated(out, w, a, put=lambda own: own.mean().expand(1, 1))): (
            "It is one number, the mean of everything; each of the e dimensions has its own mean."
        ),
        (
            lambda out, w, a: _ablated(
                torch.cat([out[:a], out.mean(0)[None], out[a + 1 :]]), w, a, put=lambda own: own
            )
        ): ("The mean runs over the heads: it should be that head's own, over the positions."),
        (
            lambda out, w, a: (
                out.mean(1, keepdim=True).expand_as(out).transpose(0, 1).flatten(1) @ w
            )
        ): ("All heads were replaced by their means; only head a should be."),
        (lambda out, w, a: _ablated(out, w, a, of=-1)): (
            "Another head was replaced: heads are counted from 0."
        ),
        (lambda out, w, a: _ablated(out, w, a, join=lambda out: out.reshape(out.shape[1], -1))): (
            "The heads are joined without a transpose: from (h, n, e) first to (n, h, e)."
        ),
    },
    praise="Head a gives the same vector at every position; the other heads are as they were.",
)


# ---- shares of what arrives


def _shares(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor, *,
    past: bool = True, scale: float | None = None, out: bool = True,
    length: Callable[[Tensor], Tensor] = lambda v: v.norm(dim=-1),
    axis: int = -1, weigh: bool = True, softmax: int = -1,
) -> Tensor:  # fmt: skip
    q, k, v = x @ wq, x @ wk, x @ wv
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    future = torch.ones(len(x), len(x)).triu(1).bool()
    scores = scores.masked_fill(future, -torch.inf) if past else scores
    weights = scores.softmax(softmax)
    arrows = weights * length(v @ wo if out else v)[:, None] if weigh else weights
    return arrows / arrows.sum(axis, keepdim=True)


check_arriving_shares = Exercise(
    """Is it each key's share of what arrives? `shares(x, Wq, Wk, Wv, Wo) -> (h, n, n)`.

    `x` is (n, dim), `Wq`, `Wk`, `Wv` are (h, dim, d), `Wo` is (h, d, dim): the part of the output
    matrix that belongs to each head. Causal. Called with n = 5, dim = 7, h = 2, d = 3.
    """,
    right=_shares,
    cases=drawn(19, x=(5, 7), Wq=(2, 7, 3), Wk=(2, 7, 3), Wv=(2, 7, 3), Wo=(2, 3, 7)),
    axes="h n m",
    mistakes={
        but(weigh=False): "Those are the attention weights: multiply them by the lengths.",
        but(out=False): (
            "The output matrix is missing: the length is that of v W_O, which the other layers get."
        ),
        but(past=False): "The causal mask is missing: a query attends to keys j ≤ i.",
        but(scale=1.0): "The scores are not scaled: multiply them by 1/√d.",
        but(length=lambda v: v.square().sum(-1)): (
            "The length is squared: take the root of the sum of the squares."
        ),
        but(length=lambda v: v.abs().sum(-1)): (
            "The length is the sum of the absolute values; the Euclidean norm is asked for."
        ),
        but(axis=-2): "The shares of a column sum to one; those of each query, a row, should.",
        (
            lambda x, wq, wk, wv, wo: (
                _shares(x, wq, wk, wv, wo, weigh=False) * (x @ wv @ wo).norm(dim=-1)[:, None]
            )
        ): ("It is not divided by the sum of the row: a share is asked for."),
    },
    praise="Weight times the length of what the output matrix makes of the value, by rows.",
)
