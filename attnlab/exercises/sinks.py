"""Checks of lesson 19: weights beside a sink, a sink logit, a gate as a sink, streaming."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- what is left for the keys

KEYS, SCORE = 9, -2.0
_SUM = KEYS * math.exp(SCORE)

check_weight_left = NumberExercise(
    "Is it the sum of the weights of 9 keys with the score −2, beside a sink logit of 0?",
    right=_SUM / (1 + _SUM),
    tolerance=0.02,
    mistakes={
        1: "That is the softmax. Here 1 is added to the sum that divides.",
        1 / (1 + _SUM): "That is the share of the sink. The keys have the rest.",
        _SUM / (1 + _SUM) / KEYS: "That is the weight of one key. There are 9 of them.",
        KEYS / (1 + KEYS): "That would be right if all scores were 0. They are −2.",
        _SUM: "That is the sum of the exponentials. Divide it by itself plus 1.",
    },
)


# ---- a sink logit


def _with_sink(
    q: Tensor, k: Tensor, v: Tensor, b: float, *,
    scaled: bool = True, scaled_sink: bool = False, sign: float = 1, filled: bool = False,
    kept: bool = True, one: bool = False,
) -> Tensor:  # fmt: skip
    """One more column of scores; every keyword is a mistake."""
    root = q.shape[1] ** 0.5
    scores = q @ k.mT / (root if scaled else 1)
    beside = torch.full_like(scores[:, :1], 1.0 if one else sign * b / (root if scaled_sink else 1))
    weights = torch.cat([scores, beside], dim=1).softmax(1)
    mine = weights[:, :-1]
    mine = mine if kept else mine / mine.sum(1, keepdim=True)
    return mine @ v + (weights[:, -1:] * v.mean(0) if filled else 0)


check_with_sink = Exercise(
    """Does a logit stand beside the scores of each row? `with_sink(q, k, v, b)`.

    `q` (n, d), `k` (m, d), `v` (m, e), `b` a number; no mask. It returns (n, e).
    """,
    right=_with_sink,
    cases=drawn(19, q=(5, 3), k=(7, 3), v=(7, 2), b=0.7),
    axes="n e",
    mistakes={
        but(kept=False): "The weights sum to one again: that is the softmax without a sink.",
        but(scaled=False): "The scores are not divided by √d.",
        but(scaled_sink=True): "b is divided by √d as well. It is compared with scaled scores.",
        but(sign=-1): "The logit has the wrong sign: a larger b takes more from the keys.",
        but(filled=True): "The sink has a value. What it takes is lost: its value is 0.",
        but(one=True): "The sink is e to the power of 1 for every b. It is e to the power of b.",
    },
    praise="The sink is one more key, with the score b and the value 0.",
)


# ---- a gate as a sink


def _logit_of(
    scores: Tensor, g: Tensor, *, sign: float = -1, of: str = "sum", squashed: bool = False
) -> Tensor:
    """L − g; every keyword is a mistake."""
    sizes = {"sum": scores.logsumexp(1), "largest": scores.amax(1), "mean": scores.mean(1)}
    return sizes[of] + sign * (g.sigmoid() if squashed else g)


check_logit_of_a_gate = Exercise(
    """Does this sink logit do what the gate does? `logit_of_a_gate(scores, g)`.

    `scores` (n, m) of one head, `g` (n,) is the gate of each query before the logistic function. It
    returns b (n,), a sink logit for each query.
    """,
    right=_logit_of,
    cases=drawn(20, scores=(5, 7), g=(5,)),
    axes="n",
    mistakes={
        but(sign=1): "The sign of g is wrong: an open gate is a small sink.",
        but(of="largest"): "That takes the largest score for L. L is the log of the sum.",
        but(of="mean"): "That takes the mean score for L. L is the log of a sum of exponentials.",
        but(squashed=True): "g stays as it is: the logistic function comes out of the identity.",
        (lambda scores, g: g - scores.logsumexp(1)): "That is −b.",
        (lambda scores, g: scores.logsumexp(1)): "The gate is missing: this sink takes half.",
    },
    praise="Now σ(L − b) = σ(g): both multiply what the head has read by the same number.",
)


# ---- one more than the sum


def _off_by_one(scores: Tensor, *, late: bool = False, extra: float = 1, over: int = 1) -> Tensor:
    """e^s / (1 + Σ e^s), without a large exponential; every keyword is a mistake."""
    most = scores.amax(over, keepdim=True).clamp(min=0)
    if late:
        most = scores.amax(over, keepdim=True)
    raised = (scores - most).exp()
    return raised / (raised.sum(over, keepdim=True) + extra * (1 if late else (-most).exp()))


def _large() -> Iterator[Arguments]:
    (scores,) = random_tensors((5, 7), seed=21)
    yield {"scores": 2 * scores}
    yield {"scores": 900 * scores}


check_off_by_one = Exercise(
    """Is 1 added to the sum, for scores of any size? `off_by_one(scores)` with `scores` (n, m).

    It returns the weights (n, m), in which no score is too large for the exponential function.
    """,
    right=_off_by_one,
    cases=_large,
    axes="n m",
    mistakes={
        but(late=True): (
            "1 is added after the largest score was subtracted. That sink grows with the scores: "
            "add e to the power of minus what was subtracted."
        ),
        but(extra=0): "Nothing is added: that is the softmax.",
        but(over=0): "The sum runs over the queries. It runs over the keys of a row.",
        (lambda scores: scores.exp() / (1 + scores.exp().sum(1, keepdim=True))): (
            "The exponential of a large score is infinite. Subtract the largest number of the row "
            "first, 0 included."
        ),
        (lambda scores: scores.softmax(1) / 2): "Each row is halved. The sink depends on the row.",
    },
    praise="A row whose scores are all very negative now has weights near 0.",
)


# ---- streaming


def _stream(
    q: Tensor, k: Tensor, v: Tensor, sinks: int, window: int, *,
    own: bool = True, first: bool = True, wider: int = 0, causal: bool = True, apart: bool = False,
) -> Tensor:  # fmt: skip
    """The first keys and the last ones; every keyword is a mistake."""
    n = len(q)
    far = torch.arange(n)[:, None] - torch.arange(n)
    near = (far >= (0 if own else 1)) & (far < window + wider)
    early = (torch.arange(n) < sinks) & ((far >= 0) | (not causal))
    scores = q @ k.mT / q.shape[1] ** 0.5

    def read(allowed: Tensor) -> Tensor:
        return scores.masked_fill(~allowed, -torch.inf).softmax(1).nan_to_num() @ v

    if apart:
        return read(near) + read(early)
    return read(near | early if first else near)


check_stream = Exercise(
    """Are the first keys and the last ones read? `stream(q, k, v, sinks, window)`.

    `q`, `k` (n, d) and `v` (n, e) of one head, causal. Query i reads the first `sinks` keys, as far
    as they are not in its future, and the last `window` ones, its own included. It returns (n, e).
    """,
    right=_stream,
    cases=drawn(22, q=(11, 3), k=(11, 3), v=(11, 2), sinks=2, window=4),
    axes="n e",
    mistakes={
        but(first=False): "The first keys are missing: that is a sliding window.",
        but(own=False): "No query reads its own key. It belongs to the window.",
        but(wider=1): "The window has one key too many: the own one is among the `window`.",
        but(causal=False): "The first query reads the second key, which is its future.",
        but(apart=True): "There are two softmaxes, so rows sum to 2. Both parts share one.",
        (lambda q, k, v, sinks, window: _stream(q, k, v, 0, len(q))): (
            "Every query reads all keys before it."
        ),
    },
    praise="A text of any length is kept as sinks + window keys and values.",
)
