"""Checks of lesson 63: weights from collected points, and the strongest keys of a torch layer."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise

# ---- weights from points


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return q @ k.mT * scale


def _given_back(q: Tensor, k: Tensor, scale: float, allowed: Tensor) -> Tensor:
    return _scores(q, k, scale).masked_fill(~allowed, -math.inf).softmax(-1)


def _given_back_cases() -> Iterator[Arguments]:
    q, k = random_tensors((3, 5, 2), (3, 7, 2))
    yield {"q": q, "k": k, "scale": 0.3, "allowed": torch.ones(5, 7, dtype=torch.bool).tril(2)}


check_given_back = Exercise(
    """Are those the weights? `given_back(q, k, scale, allowed) -> (h, n, m)`.

    `q` (h, n, d), `k` (h, m, d), `scale` a number, `allowed` (n, m) bool, True = may attend.
    """,
    right=_given_back,
    cases=_given_back_cases,
    axes="h n m",
    mistakes={
        (lambda q, k, scale, allowed: _scores(q, k, scale).softmax(-1)): (
            "The mask is not used: a key that is not allowed must have the score −∞ before the "
            "softmax."
        ),
        (lambda q, k, scale, allowed: _scores(q, k, scale).softmax(-1) * allowed): (
            "The mask comes after the softmax, so the rows no longer add up to 1. Set the scores "
            "to −∞ before it."
        ),
        (lambda q, k, scale, allowed: _scores(q, k, scale).masked_fill(~allowed, 0).softmax(-1)): (
            "A forbidden key gets the score 0, and exp(0) = 1 is not nothing. It needs −∞."
        ),
        (lambda q, k, scale, allowed: _given_back(q, k, scale, ~allowed)): (
            "The mask is the wrong way round: True means that the query may attend to the key."
        ),
        (
            lambda q, k, scale, allowed: (
                _scores(q, k, scale).masked_fill(~allowed, -math.inf).softmax(-2)
            )
        ): (
            "The softmax runs over the queries (axis −2). Each query spreads its attention over "
            "the keys, axis −1."
        ),
        (lambda q, k, scale, allowed: _given_back(q, k, 1, allowed)): (
            "`scale` is not used: the products are multiplied by it before the softmax."
        ),
        (lambda q, k, scale, allowed: _given_back(q, k, 1 / scale, allowed)): (
            "You divide by `scale`. It is what the products are multiplied by, 1/√d as a rule."
        ),
        (lambda q, k, scale, allowed: _given_back(q, k, q.shape[-1] ** -0.5, allowed)): (
            "The scale is 1/√d in many models and not in all: use the `scale` that is given."
        ),
        (lambda q, k, scale, allowed: _scores(q, k, scale).masked_fill(~allowed, -math.inf)): (
            "Those are the scores: the softmax over the keys is missing."
        ),
    },
    praise="These are the weights that queries and keys alone give: compare them with the model's.",
)


# ---- strongest keys of a torch layer


def _projected(weight: Tensor, bias: Tensor, x: Tensor, heads: int) -> Tensor:
    """(3, h, n, d): queries, keys and values."""
    return (x @ weight.T + bias).unflatten(-1, (3, heads, -1)).permute(1, 2, 0, 3)


def _strongest_of(q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
    return (q @ k.mT).masked_fill(~allowed, -math.inf).argmax(-1)


def _strongest(weight: Tensor, bias: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
    q, k, _ = _projected(weight, bias, x, heads)
    return _strongest_of(q, k, allowed)


def _of_parts(first: int, second: int) -> Callable[..., Tensor]:
    """A mistake: other parts of the projection in the place of queries and keys."""

    def mistaken(w: Tensor, b: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
        parts = _projected(w, b, x, heads)
        return _strongest_of(parts[first], parts[second], allowed)

    return mistaken


def _strided(weight: Tensor, bias: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
    """A mistake: numbers of the heads interleaved."""
    q, k, _ = (x @ weight.T + bias).unflatten(-1, (3, -1, heads)).permute(1, 3, 0, 2)
    return _strongest_of(q, k, allowed)


def _viewed(weight: Tensor, bias: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
    """A mistake: (n, h·d) viewed as (h, n, d), which mixes tokens and heads."""
    q, k, _ = ((x @ part.T + b) for part, b in zip(weight.chunk(3), bias.chunk(3), strict=True))
    q, k = (each.reshape(heads, len(x), -1) for each in (q, k))
    return _strongest_of(q, k, allowed)


def _headwise(weight: Tensor, bias: Tensor, x: Tensor, heads: int, allowed: Tensor) -> Tensor:
    """A mistake: each head's query, key and value side by side."""
    q, k, _ = (x @ weight.T + bias).unflatten(-1, (heads, 3, -1)).permute(2, 1, 0, 3)
    return _strongest_of(q, k, allowed)


def _strongest_cases() -> Iterator[Arguments]:
    weight, bias, x = random_tensors((45, 15), (45,), (11, 15))
    allowed = torch.ones(11, 11, dtype=torch.bool).tril(-1)
    allowed[0, 0] = True
    yield {"weight": weight, "bias": 3 * bias, "x": x, "heads": 3, "allowed": allowed}


check_strongest = Exercise(
    """Is it the strongest key? `strongest(weight, bias, x, heads, allowed) -> (h, n)`.

    `weight` (3·dim, dim) and `bias` (3·dim,) are `in_proj_weight` and `in_proj_bias` of an
    `nn.MultiheadAttention`, `x` (n, dim) one sequence, `allowed` (n, n) bool. For each head and
    query the position of the allowed key with the largest weight.
    """,
    right=_strongest,
    cases=_strongest_cases,
    axes="h n",
    mistakes={
        (lambda w, b, x, heads, allowed: _strongest(w, 0 * b, x, heads, allowed)): (
            "The bias is missing: a query is W x + b, and b · k differs from key to key."
        ),
        (lambda w, b, x, heads, allowed: _strongest(w, b, x, heads, torch.ones_like(allowed))): (
            "The mask is not used: a key that is not allowed cannot be the strongest."
        ),
        _of_parts(1, 0): (
            "Queries and keys are exchanged: the first third of the rows of `weight` makes the "
            "queries, the second the keys."
        ),
        _of_parts(0, 2): (
            "Those are queries and values: the keys are made by the second third of the rows of "
            "`weight`."
        ),
        _strided: (
            "The heads are interleaved: head 0 has the FIRST d numbers of a query, not every h-th. "
            "Split the last axis into (h, d)."
        ),
        _viewed: (
            "Tokens and heads are mixed: (n, h·d) cannot be viewed as (h, n, d). View it as (n, h, "
            "d), then move the axis of the heads to the front."
        ),
        _headwise: (
            "The thirds are taken inside each head. In torch's layer all queries stand before all "
            "keys, and all keys before all values."
        ),
        (
            lambda w, b, x, heads, allowed: (
                lambda q, k, _: (q @ k.mT).masked_fill(~allowed, -math.inf).argmax(-2)
            )(*_projected(w, b, x, heads))
        ): ("The maximum is taken over the queries: for each query, look along the keys."),
        (
            lambda w, b, x, heads, allowed: (lambda q, k, _: (q @ k.mT * allowed).argmax(-1))(
                *_projected(w, b, x, heads)
            )
        ): ("Forbidden pairs get the score 0, which can be the largest. They need −∞."),
        (lambda w, b, x, heads, allowed: _strongest(w, b, x, 1, allowed).expand(heads, -1)): (
            "Only one head: the products of all heads are added. Split queries and keys into heads "
            "first."
        ),
    },
    praise=(
        "You have looked inside torch's own layer. The scale 1/√d and the softmax change no order."
    ),
)


# ---- bytes of the vectors

check_collected_bytes = NumberExercise(
    "Is it what 2,500 tokens of BERT-base take, queries and keys in float16?",
    right=2_500 * 12 * 12 * 2 * 64 * 2,
    unit="bytes",
    mistakes={
        2_500 * 12 * 12 * 64 * 2: "Queries AND keys: each token has both in every head.",
        2_500 * 12 * 12 * 2 * 64 * 4: "That is float32. A float16 number takes two bytes.",
        2_500 * 12 * 2 * 64 * 2: "That is one layer. There are twelve of them.",
        2_500 * 2 * 64 * 2: "That is one head. There are 12 × 12 of them.",
    },
)
