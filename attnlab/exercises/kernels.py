"""Checks of lesson 23: the variance of random features, the linear order, and a causal layer."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, as_float64, random_tensors, run, same
from attnlab.exercises.exercise import Exercise
from attnlab.exercises.parts import PartsExercise
from attnlab.exercises.verdict import Function, Mistake
from attnlab.exercises.work import Work

# ---- how many features

check_feature_count = NumberExercise(
    "Is it the r for which the relative spread is 0.5 where |x + y|² = 10?",
    right=(math.exp(10) - 1) / 0.25,
    tolerance=1e-3,
    unit="features",
    mistakes={
        (math.exp(10) - 1) / 0.5: (
            "The variance is the square of the relative spread: 0.5², not 0.5."
        ),
        math.exp(10) - 1: "That is for a relative spread of 1.",
        (math.exp(5) - 1) / 0.25: "That halves the exponent: the variance has the whole |x + y|².",
        math.sqrt((math.exp(10) - 1) / 0.25): (
            "That is the root of the answer: r is in the variance."
        ),
        (math.exp(20) - 1) / 0.25: "That doubles the exponent: it is |x + y|², not its double.",
    },
)


# ---- the variance


def _square(x: Tensor) -> Tensor:
    return x.square().sum()


def _variance(x: Tensor, y: Tensor, r: int) -> Parts:
    plus = _square(x + y)
    return (2 * plus - _square(x) - _square(y)).exp(), (plus.exp() - 1) / r


def _variance_cases() -> Iterator[Arguments]:
    for d, r in ((5, 7), (3, 2)):
        x, y = random_tensors((d,), (d,), seed=d)
        yield {"x": 0.4 * x, "y": 0.3 * y, "r": r}


check_variance = PartsExercise(
    """Is it the variance of positive features? `variance(x, y, r) -> (second_moment, relative)`.

    `x` and `y` are (d,), already times d^(-1/4). With f = e^(ω·x - |x|²/2) e^(ω·y - |y|²/2),
    `second_moment` is the mean of f² over ω, and `relative` the variance of the mean of r draws of
    f, over e^(2 x·y). Called with d = 5 and r = 7, then with d = 3 and r = 2.
    """,
    right=_variance,
    cases=_variance_cases,
    axes={"second_moment": "", "relative": ""},
    of_part={
        "second_moment": {
            (lambda x, y, r: (2 * x @ y).exp()): (
                "The second moment is the square of the mean, e^(2 x·y): that would leave no "
                "variance. f² contains e^(2ω·z) with z = x + y; 2ω·z is normal with variance "
                "4|z|², and the mean of its exponential is e^(2|z|²)."
            ),
            (lambda x, y, r: (x @ y).exp()): "That is the mean of f, e^(x·y), and not that of f².",
            (lambda x, y, r: (2 * _square(x + y)).exp()): (
                "The factor of the features is missing in the second moment: squared, it is "
                "e^(-|x|² - |y|²)."
            ),
            (lambda x, y, r: (2 * _square(x + y) - (_square(x) + _square(y)) / 2).exp()): (
                "The factor of the features was not squared: e^(-|x|²/2 - |y|²/2) becomes e^(-|x|² "
                "- |y|²)."
            ),
            (lambda x, y, r: (4 * _square(x + y) - _square(x) - _square(y)).exp()): (
                "The mean of e^g for a normal g is e to HALF the variance of g: e^(2|z|²), not "
                "e^(4|z|²)."
            ),
        },
        "relative": {
            (lambda x, y, r: (2 * x @ y).exp() * (_square(x + y).exp() - 1) / r): (
                "The variance is not relative: divide it by the square of the mean, e^(2 x·y)."
            ),
            (lambda x, y, r: _square(x + y).exp() - 1): (
                "That is the variance of one draw: the mean of r independent draws has 1/r of it."
            ),
            (lambda x, y, r: (_square(x + y).exp() - 1) / r**2): (
                "It is divided by r²: the variance of a mean of r draws is that of one draw over r."
            ),
            (lambda x, y, r: _square(x + y).exp() / r): (
                "The square of the mean was not subtracted: a variance is E[f²] - (E f)²."
            ),
            (lambda x, y, r: ((_square(x + y).exp() - 1) / r).sqrt()): (
                "That is the standard deviation; the variance is its square."
            ),
            (lambda x, y, r: (_square(x - y).exp() - 1) / r): (
                "That has x - y in it: the exponents ω·x and ω·y are added."
            ),
        },
    },
    praise="The relative variance is (e^(|x + y|²) - 1) / r: it grows with the length of x + y.",
)


# ---- the linear order of products


def _attended(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    return phi_q @ (phi_k.mT @ v) / (phi_q @ phi_k.sum(0))[:, None]


def _linear_order_cases() -> Iterator[Arguments]:
    for n, m in ((7, 11), (97, 101)):
        q, k, v = random_tensors((n, 5), (m, 5), (m, 3), seed=n)
        yield {"phi_q": q.exp(), "phi_k": k.exp(), "v": v}


def _without_a_map(function: Function, given: Arguments) -> None:
    with Work() as seen:
        answer = run(function, given)
    assert as_float64(answer.value) is not None
    if seen.largest <= max(x.numel() for x in given.values()):
        return
    n, m = len(given["phi_q"]), len(given["phi_k"])
    made_of = {n: "n", m: "m", 5: "r", 3: "e"}
    axes = " × ".join(made_of.get(size, str(size)) for size in seen.shape)
    raise Mistake(
        f"The numbers are right, but a tensor of {axes} = {seen.shape} is made on the way: "
        "multiply keys and values first, φ(q) (φ(k)ᵀ v)."
    )


check_linear_order = Exercise(
    """Is it attention without the n × m map? `linear_attention(phi_q, phi_k, v) -> (n, e)`.

    `phi_q` (n, r) and `phi_k` (m, r) are features, all positive, and `v` (m, e) values; every query
    attends to every key. Called with (n, m, r, e) = (7, 11, 5, 3) and (97, 101, 5, 3), where no
    tensor may be larger than the inputs.
    """,
    right=_attended,
    cases=_linear_order_cases,
    axes="n e",
    mistakes={
        (lambda q, k, v: q @ (k.mT @ v)): (
            "The denominator is missing: each row is divided by φ(q)·Σφ(k), the sum of its weights."
        ),
        (lambda q, k, v: q @ (k.mT @ v) / len(k)): (
            "It divides by the number of keys; the weights of a row sum to φ(q)·Σφ(k)."
        ),
        (lambda q, k, v: q @ (k.mT @ v) / (q @ k.sum(0)).sum()): (
            "Every row is divided by one number, the sum over all queries; each query has its own "
            "sum."
        ),
        (lambda q, k, v: q @ (k.mT @ v) / k.sum()): (
            "It divides by the sum of the keys' features alone; the denominator is its dot product "
            "with φ(q)."
        ),
        (lambda q, k, v: (q @ k.mT).softmax(-1) @ v): (
            "It uses a softmax: the features replace it, and their products are the weights."
        ),
    },
    praise="Keys and values are summed once for all queries: the cost grows with n, not n².",
    then=_without_a_map,
)


# ---- causal attention by positive features


def _scaled(x: Tensor) -> Tensor:
    return x * x.shape[-1] ** -0.25


def _exponents(x: Tensor, omega: Tensor, half: float = 0.5) -> Tensor:
    return x @ omega.mT - half * x.square().sum(-1, keepdim=True)


def _logarithms(
    q: Tensor, k: Tensor, omega: Tensor, scale: Callable[[Tensor], Tensor] = _scaled
) -> Tensor:
    """Logarithms of the row sums of all weights before the division; nothing overflows in them."""
    a, b = _exponents(scale(q), omega), _exponents(scale(k), omega)
    return torch.logsumexp(a[:, None] + b, -1)


def _averaged(logarithms: Tensor, v: Tensor, diagonal: int = 0) -> Tensor:
    allowed = torch.ones_like(logarithms).tril(diagonal).bool()
    return logarithms.masked_fill(~allowed, -torch.inf).softmax(-1) @ v


def _performer(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    return _averaged(_logarithms(q, k, omega), v)


def _by_key_maxima(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    a, b = _exponents(_scaled(q), omega), _exponents(_scaled(k), omega)
    return _averaged(torch.logsumexp(a[:, None] + b - b.amax(-1, keepdim=True), -1), v)


def _long_keys(q: Tensor, k: Tensor, v: Tensor, omega: Tensor) -> Tensor:
    a, b = _exponents(_scaled(q), omega), _exponents(_scaled(k), omega, half=0)
    return _averaged(torch.logsumexp(a[:, None] + b, -1), v)


def _causal_performer_then(function: Function, given: Arguments) -> None:
    with Work() as seen:
        run(function, given)
    if seen.largest >= len(given["q"]) ** 2:
        raise Mistake(
            f"The numbers are right, but a tensor of {seen.shape} is made on the way, as large as "
            "an n × n map: keep running sums of φ(k) vᵀ and φ(k)."
        )
    large = _sequences(73.0)
    answer = run(function, large)
    if not same(answer.value, _performer(*large.values())):
        raise Mistake(
            "For ordinary numbers it is right, but not for long queries and keys: e^(ω·x - |x|²/2) "
            "is smaller than any float there. Subtract a maximum from the exponents first: each "
            "query may have its own, the keys need one for all of them."
        )


check_causal_performer = Exercise(
    """Is it causal attention by positive features? `performer(q, k, v, omega) -> (n, e)`.

    `q` and `k` are (n, d), `v` (n, e), `omega` (r, d); no n × n tensor may be made, and long
    queries and keys must not overflow. Called with n = 31, d = 7, e = 3, r = 5.
    """,
    right=_performer,
    cases=lambda: [_sequences()],
    axes="n e",
    mistakes={
        (lambda q, k, v, omega: _averaged(_logarithms(q, k, omega), v, len(q))): (
            "Queries use later keys: the sums of a query end with its own position."
        ),
        (lambda q, k, v, omega: _averaged(_logarithms(q, k, omega), v, -1)): (
            "A position does not use its own key: add the key and the value first, then read."
        ),
        (lambda q, k, v, omega: _averaged(_logarithms(q, k, omega, lambda x: x), v)): (
            "The scale is missing: queries and keys are multiplied by d^(-1/4)."
        ),
        (
            lambda q, k, v, omega: _averaged(
                _logarithms(q, k, omega, lambda x: x * x.shape[-1] ** -0.5), v
            )
        ): ("Queries and keys are divided by √d each: it is d^(-1/4) each, 1/√d together."),
        (
            lambda q, k, v, omega: _performer(_scaled(q), k / _scaled(torch.ones_like(k)), v, omega)
        ): (
            "The whole 1/√d is given to the query: share it out, d^(-1/4) to each, or the estimate "
            "varies more."
        ),
        _long_keys: (
            "The |y|²/2 of the keys is missing: it differs from key to key and does not cancel."
        ),
        _by_key_maxima: "Each key has its own maximum taken out: that changes its weight. Of the "
        "keys, only what all of them share cancels.",
        (lambda q, k, v, omega: _logarithms(q, k, omega).exp().tril() @ v / len(omega)): (
            "It is not divided by the sum of the weights, φ(q)·Σφ(k)."
        ),
        (lambda q, k, v, omega: _logarithms(q, k, omega).exp().tril() @ v): (
            "It is not divided by the sum of the weights, and the features lack 1/√r as well."
        ),
        (lambda q, k, v, omega: _logarithms(q, k, omega).softmax(-1).tril() @ v): (
            "The denominator sums over all keys; a query's sum ends with its own position."
        ),
        (lambda q, k, v, omega: _averaged(_scaled(q) @ _scaled(k).mT, v)): (
            "That is the exact softmax; it should be the estimate by the drawn rows omega."
        ),
    },
    praise="Causal, without an n × n map, and safe for long queries and keys.",
    then=_causal_performer_then,
)


def _sequences(length: float = 0.0) -> Arguments:
    """All queries and keys are `length` times one direction, and a little noise."""
    q, k, v, omega, along = random_tensors((31, 7), (31, 7), (31, 3), (5, 7), (7,), seed=11)
    shift = length * along / along.norm()
    return {"q": 0.5 * q + shift, "k": 0.5 * k + shift, "v": v, "omega": omega}
