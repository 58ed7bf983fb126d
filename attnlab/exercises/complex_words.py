"""Checks of lesson 41: a word as a wave, and the score of two complex vectors."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

# ---- a word as a wave


def _pair(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.cat((real, imaginary), dim=-1)


def _wave(r: Tensor, omega: Tensor, theta: Tensor, p: int) -> Tensor:
    angle = omega * p + theta
    return _pair(r * angle.cos(), r * angle.sin())


_WAVE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The initial phase θ is missing: the angle at position p is ωp + θ.",
        lambda r, w, t, p: _wave(r, w, 0 * t, p),
    ),
    (
        "The phase turns as well: it is (ω + θ)p, and should be ωp + θ.",
        lambda r, w, t, p: _wave(r, w + t, 0 * t, p),
    ),
    (
        "The amplitude is missing: these numbers all have modulus 1.",
        lambda r, w, t, p: _wave(torch.ones_like(r), w, t, p),
    ),
    (
        "Real and imaginary parts are exchanged: the cosine is the real part and comes first.",
        lambda r, w, t, p: _wave(r, w, t, p).roll(len(r)),
    ),
    (
        "They alternate, dimension by dimension; all real parts come first, then all imaginary "
        "ones.",
        lambda r, w, t, p: _wave(r, w, t, p).view(2, -1).mT.flatten(),
    ),
    (
        "The sine has the wrong sign: e^(iα) = cos α + i sin α.",
        lambda r, w, t, p: _wave(r, -w, -t, p),
    ),
    (
        "A vector of the position is added, as sinusoidal positions are; here it is multiplied.",
        lambda r, w, t, p: _wave(torch.ones_like(r), w, t, p) + _pair(r, r),
    ),
)


@returns_verdict
def check_wave(function: Function) -> str:
    """Is it a complex word? `wave(r, omega, theta, p) -> (2d,)`: real parts, then imaginary ones.

    `r`, `omega` and `theta` (d,) are amplitudes, frequencies and phases of one word, and `p` is its
    position. Called with d = 7, p = 3 and d = 5, p = 2.
    """
    for d, p in ((7, 3), (5, 2)):
        r, omega, theta = random_tensors((d,), (d,), (d,), seed=d)
        given = {"r": r, "omega": omega, "theta": theta, "p": p}
        require(function, given, _wave, shape="2d", known_mistakes=_WAVE_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Moving the word turns each dimension by ωk and leaves all lengths as they are."


# ---- scores


def _score(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.hypot(a @ c.mT + b @ d.mT, b @ c.mT - a @ d.mT) / a.shape[-1] ** 0.5


_SCORE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The key is not conjugated: (a + ib)(c - id) has the real part ac + bd. As it is, "
        "phases add up and the score depends on absolute positions.",
        lambda a, b, c, d: _score(a, b, c, -d),
    ),
    (
        "That is the real part alone; the score is the modulus √(Re² + Im²).",
        lambda a, b, c, d: (a @ c.mT + b @ d.mT) / a.shape[-1] ** 0.5,
    ),
    (
        "That is |z|², not |z|: the square root is missing.",
        lambda a, b, c, d: _score(a, b, c, d).square() * a.shape[-1] ** 0.5,
    ),
    (
        "The 1/√d is missing.",
        lambda a, b, c, d: _score(a, b, c, d) * a.shape[-1] ** 0.5,
    ),
    (
        "It divides by √(2d), as if real and imaginary parts were dimensions of their own.",
        lambda a, b, c, d: _score(a, b, c, d) / 2**0.5,
    ),
    (
        "The imaginary part has a wrong sign: Im z = b·c - a·d.",
        lambda a, b, c, d: (
            torch.hypot(a @ c.mT + b @ d.mT, b @ c.mT + a @ d.mT) / a.shape[-1] ** 0.5
        ),
    ),
    (
        "These are the weights: the softmax comes later.",
        lambda a, b, c, d: _score(a, b, c, d).softmax(-1),
    ),
)


@returns_verdict
def check_complex_score(function: Function) -> str:
    """Is it |q k†| / √d? `score(a, b, c, d) -> (n, m)` of queries a + ib and keys c + id.

    `a`, `b` (n, w) and `c`, `d` (m, w) are real tensors of width w. Called with
    (n, m, w) = (7, 11, 5).
    """
    a, b, c, d = random_tensors((7, 5), (7, 5), (11, 5), (11, 5), seed=3)
    given = {"a": a, "b": b, "c": c, "d": d}
    require(function, given, _score, shape="n m", known_mistakes=_SCORE_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "With the conjugate the phases of query and key are subtracted: the score is relative."
