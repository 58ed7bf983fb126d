"""Checks of lesson 41: a word as a wave, and the score of two complex vectors."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- a word as a wave


def _pair(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.cat((real, imaginary), dim=-1)


def _wave(r: Tensor, omega: Tensor, theta: Tensor, p: int) -> Tensor:
    angle = omega * p + theta
    return _pair(r * angle.cos(), r * angle.sin())


def _wave_cases() -> Iterator[Arguments]:
    for d, p in ((7, 3), (5, 2)):
        r, omega, theta = random_tensors((d,), (d,), (d,), seed=d)
        yield {"r": r, "omega": omega, "theta": theta, "p": p}


check_wave = Exercise(
    """Is it a complex word? `wave(r, omega, theta, p) -> (2d,)`: real parts, then imaginary ones.

    `r`, `omega` and `theta` (d,) are amplitudes, frequencies and phases of one word, and `p` is its
    position. Called with d = 7, p = 3 and d = 5, p = 2.
    """,
    right=_wave,
    cases=_wave_cases,
    axes="2d",
    mistakes={
        (lambda r, w, t, p: _wave(r, w, 0 * t, p)): (
            "The initial phase θ is missing: the angle at position p is ωp + θ."
        ),
        (lambda r, w, t, p: _wave(r, w + t, 0 * t, p)): (
            "The phase turns as well: it is (ω + θ)p, and should be ωp + θ."
        ),
        (lambda r, w, t, p: _wave(torch.ones_like(r), w, t, p)): (
            "The amplitude is missing: these numbers all have modulus 1."
        ),
        (lambda r, w, t, p: _wave(r, w, t, p).roll(len(r))): (
            "Real and imaginary parts are exchanged: the cosine is the real part and comes first."
        ),
        (lambda r, w, t, p: _wave(r, w, t, p).view(2, -1).mT.flatten()): (
            "They alternate, dimension by dimension; all real parts come first, then all imaginary "
            "ones."
        ),
        (lambda r, w, t, p: _wave(r, -w, -t, p)): (
            "The sine has the wrong sign: e^(iα) = cos α + i sin α."
        ),
        (lambda r, w, t, p: _wave(torch.ones_like(r), w, t, p) + _pair(r, r)): (
            "A vector of the position is added, as sinusoidal positions are; here it is multiplied."
        ),
    },
    praise="Moving the word turns each dimension by ωk and leaves all lengths as they are.",
)


# ---- scores


def _score(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.hypot(a @ c.mT + b @ d.mT, b @ c.mT - a @ d.mT) / a.shape[-1] ** 0.5


check_complex_score = Exercise(
    """Is it |q k†| / √d? `score(a, b, c, d) -> (n, m)` of queries a + ib and keys c + id.

    `a`, `b` (n, w) and `c`, `d` (m, w) are real tensors of width w. Called with
    (n, m, w) = (7, 11, 5).
    """,
    right=_score,
    cases=drawn(3, a=(7, 5), b=(7, 5), c=(11, 5), d=(11, 5)),
    axes="n m",
    mistakes={
        (lambda a, b, c, d: _score(a, b, c, -d)): (
            "The key is not conjugated: (a + ib)(c - id) has the real part ac + bd. As it is, "
            "phases add up and the score depends on absolute positions."
        ),
        (lambda a, b, c, d: (a @ c.mT + b @ d.mT) / a.shape[-1] ** 0.5): (
            "That is the real part alone; the score is the modulus √(Re² + Im²)."
        ),
        (
            lambda a, b, c, d: (
                ((a @ c.mT + b @ d.mT).abs() + (b @ c.mT - a @ d.mT).abs()) / a.shape[-1] ** 0.5
            )
        ): ("Those are |Re| + |Im|; the modulus is the length √(Re² + Im²)."),
        (lambda a, b, c, d: _score(a, b, c, d).square() * a.shape[-1] ** 0.5): (
            "That is |z|², not |z|: the square root is missing."
        ),
        (lambda a, b, c, d: _score(a, b, c, d) * a.shape[-1] ** 0.5): "The 1/√d is missing.",
        (lambda a, b, c, d: _score(a, b, c, d) / 2**0.5): (
            "It divides by √(2d), as if real and imaginary parts were dimensions of their own."
        ),
        (
            lambda a, b, c, d: (
                torch.hypot(a @ c.mT + b @ d.mT, b @ c.mT + a @ d.mT) / a.shape[-1] ** 0.5
            )
        ): ("The imaginary part has a wrong sign: Im z = b·c - a·d."),
        (lambda a, b, c, d: _score(a, b, c, d).softmax(-1)): (
            "These are the weights: the softmax comes later."
        ),
    },
    praise="With the conjugate the phases of query and key are subtracted: the score is relative.",
)


# ---- a layer of complex words


def _layer(
    r: Tensor, omega: Tensor, a: Tensor, b: Tensor, c: Tensor, *,
    position: Callable[[Tensor], Tensor] = lambda p: p[:, None], start: int = 0,
    conjugated: bool = True, part: Callable[[Tensor], Tensor] = torch.abs,
    scale: float | None = None, axis: int = -1, added: bool = False,
    values: Callable[[Tensor], Tensor] = torch.clone,
) -> Tensor:  # fmt: skip
    """The layer; a known mistake replaces one of the steps or leaves one out."""
    n = len(r)
    angle = omega * position(torch.arange(start, start + n, dtype=r.dtype))
    waves = torch.polar(torch.ones_like(r), angle)
    x = r + waves if added else r * waves
    q, k, v = (x @ torch.complex(m[0], m[1]) for m in (a, b, c))
    scores = part(q @ (k.mH if conjugated else k.mT))
    weights = (scores * (q.shape[-1] ** -0.5 if scale is None else scale)).softmax(axis)
    out = weights.to(v.dtype) @ values(v)
    return _pair(out.real, out.imag)


check_complex_layer = Exercise(
    """Is it a layer of complex words? `layer(r, omega, A, B, C) -> (n, 2d)`.

    `r` and `omega` (n, D) are amplitudes and frequencies of the words at positions 0, 1, …; `A`,
    `B` and `C` (2, D, d) hold the real and the imaginary parts of the matrices that make queries,
    keys and values. The result has the real parts of the outputs first, then the imaginary ones.
    Called with n = 7, D = 5, d = 3.
    """,
    right=_layer,
    cases=drawn(8, r=(7, 5), omega=(7, 5), A=(2, 5, 3), B=(2, 5, 3), C=(2, 5, 3)),
    axes="n 2d",
    mistakes={
        but(conjugated=False): "The keys are not conjugated: with `k.mT` the angles of query and "
        "key are added. `k.mH` is the conjugate transpose.",
        but(part=lambda z: z.real): "The score is the real part: here it is the modulus, `.abs()`.",
        but(part=lambda z: z.abs().square()): "The score is |z|²: the modulus is its square root.",
        but(scale=1): "The scores are not divided by √d.",
        (lambda r, *rest: _layer(r, *rest, scale=r.shape[-1] ** -0.5)): (
            "It divides by √D, the width of the words; queries and keys have d dimensions."
        ),
        (lambda r, omega, a, b, c: _layer(r, omega, a, b, c, scale=(2 * a.shape[-1]) ** -0.5)): (
            "It divides by √(2d), as if real and imaginary parts were dimensions of their own."
        ),
        but(position=lambda p: torch.ones_like(p)[:, None]): (
            "The words do not turn: the angle is ω times the position."
        ),
        but(start=1): "Positions are counted from 1; here the first word has position 0.",
        but(added=True): (
            "The wave is added to the amplitude, as sinusoidal positions are; here it "
            "is multiplied."
        ),
        but(axis=-2): (
            "The softmax runs over the queries; each query has weights over the keys, `dim=-1`."
        ),
        but(values=torch.conj_physical): "The values are conjugated as well: only the keys are.",
        (lambda r, omega, a, b, c: _layer(r, omega, a, b, c).roll(c.shape[-1], -1)): (
            "Real and imaginary parts are exchanged: the real parts come first."
        ),
    },
    praise="Words that turn, scores that keep the difference of angles, and values that are waves.",
)
