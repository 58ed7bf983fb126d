"""Lesson 41's checks: a word as a wave, and the score of two complex vectors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_complex_layer, check_complex_score, check_wave
from tests.exercises.frame import answers_to


def wave(r: Tensor, omega: Tensor, theta: Tensor, p: int) -> Tensor:
    f = r * torch.exp(1j * (omega * p + theta))
    return torch.cat([f.real, f.imag])


def by_loops(r: Tensor, omega: Tensor, theta: Tensor, p: int) -> Tensor:
    angles = [w * p + t for w, t in zip(omega, theta, strict=True)]
    parts = [x * a.cos() for x, a in zip(r, angles, strict=True)]
    return torch.stack(parts + [x * a.sin() for x, a in zip(r, angles, strict=True)])


def score(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return (torch.complex(a, b) @ torch.complex(c, d).mH).abs() / a.shape[1] ** 0.5


def score_by_parts(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    real, imag = a @ c.T + b @ d.T, b @ c.T - a @ d.T
    return ((real**2 + imag**2) / a.shape[1]).sqrt()


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_wave, wave),
    (check_wave, by_loops),
    (check_complex_score, score),
    (check_complex_score, score_by_parts),
]

WAVE_WRONG: dict[str, tuple[str, Any]] = {
    "no phase": ("θ is missing", lambda r, w, t, p: wave(r, w, t * 0, p)),
    "turning phase": ("The phase turns", lambda r, w, t, p: wave(r, w + t, t * 0, p)),
    "length": ("amplitude is missing", lambda r, w, t, p: wave(r**0, w, t, p)),
    "exchanged": ("are exchanged", lambda r, w, t, p: wave(r, w, t, p).roll(len(r))),
    "interleaved": (
        "They alternate",
        lambda r, w, t, p: torch.view_as_real(r * torch.exp(1j * (w * p + t))).flatten(),
    ),
    "sign": ("wrong sign", lambda r, w, t, p: wave(r, -w, -t, p)),
    "added": ("is added", lambda r, w, t, p: wave(r**0, w, t, p) + torch.cat([r, r])),
    "complex": ("complex", lambda r, w, t, p: r * torch.exp(1j * (w * p + t))),
    "None": ("`return`", lambda r, w, t, p: None),
}

SCORE_WRONG: dict[str, tuple[str, Any]] = {
    "unconjugated": ("not conjugated", lambda a, b, c, d: score(a, b, c, -d)),
    "real": ("real part alone", lambda a, b, c, d: (a @ c.T + b @ d.T) / 5**0.5),
    "sum": (
        "|Re| + |Im|",
        lambda a, b, c, d: ((a @ c.T + b @ d.T).abs() + (b @ c.T - a @ d.T).abs()) / 5**0.5,
    ),
    "square": ("|z|², not |z|", lambda a, b, c, d: score(a, b, c, d) ** 2 * 5**0.5),
    "scale": ("The 1/√d is missing", lambda a, b, c, d: score(a, b, c, d) * 5**0.5),
    "width": ("√(2d)", lambda a, b, c, d: score(a, b, c, d) / 2**0.5),
    "imaginary": (
        "a wrong sign",
        lambda a, b, c, d: ((a @ c.T + b @ d.T) ** 2 + (b @ c.T + a @ d.T) ** 2).sqrt() / 5**0.5,
    ),
    "weights": ("softmax comes later", lambda a, b, c, d: score(a, b, c, d).softmax(-1)),
    "transposed": ("transposed", lambda a, b, c, d: score(a, b, c, d).T),
}

TABLES = [(check_wave, WAVE_WRONG), (check_complex_score, SCORE_WRONG)]


TestAnswers = answers_to(RIGHT, TABLES)


# ---- a layer


def one_by_one(r, omega, a, b, c):
    """Every pair on its own, with real numbers alone."""
    n, d = len(r), a.shape[-1]
    angle = omega * torch.arange(n, dtype=r.dtype)[:, None]
    x, y = r * angle.cos(), r * angle.sin()
    (qx, qy), (kx, ky), (vx, vy) = ((x @ m[0] - y @ m[1], x @ m[1] + y @ m[0]) for m in (a, b, c))
    out = torch.zeros(n, 2 * d, dtype=r.dtype)
    for i in range(n):
        real = (qx[i] * kx + qy[i] * ky).sum(-1)
        imaginary = (qy[i] * kx - qx[i] * ky).sum(-1)
        weights = ((real**2 + imaginary**2).sqrt() / d**0.5).softmax(0)
        out[i] = torch.cat([weights @ vx, weights @ vy])
    return out


def layer(
    r,
    omega,
    a,
    b,
    c,
    *,
    key=lambda k: k.mH,
    score=torch.abs,
    root=True,
    axis=-1,
    first=0,
    wave=lambda r, angle: r * torch.exp(1j * angle),
    value=lambda v: v,
    real=True,
):
    p = torch.arange(len(r), dtype=r.dtype)[:, None] + first
    x = wave(r, omega * p)
    q, k, v = (x @ torch.complex(*m) for m in (a, b, c))
    weights = (score(q @ key(k)) / (k.shape[-1] ** 0.5 if root else 1)).softmax(axis)
    out = weights.to(v.dtype) @ value(v)
    parts = (out.real, out.imag) if real else (out.imag, out.real)
    return torch.cat(parts, -1)


def changed(**changes):
    return lambda *given: layer(*given, **changes)


LAYER_WRONG = {
    "transposed only": ("not conjugated", changed(key=lambda k: k.mT)),
    "real part": ("the modulus, `.abs()`", changed(score=lambda z: z.real)),
    "squared": ("|z|²", changed(score=lambda z: z.abs() ** 2)),
    "no root": ("divided by √d", changed(root=False)),
    "width of words": ("It divides by √D", changed(score=lambda z: z.abs() * (3 / 5) ** 0.5)),
    "two d": ("It divides by √(2d)", changed(score=lambda z: z.abs() / 2**0.5)),
    "no turning": ("do not turn", lambda r, w, a, b, c: layer(
        r, w, a, b, c, wave=lambda r, angle: r * torch.exp(1j * w))),
    "from 1": ("counted from 1", changed(first=1)),
    "added": ("added to the amplitude", changed(wave=lambda r, t: r + torch.exp(1j * t))),
    "columns": ("softmax runs over the queries", changed(axis=0)),
    "values": ("values are conjugated", changed(value=lambda v: v.conj())),
    "exchanged": ("parts are exchanged", changed(real=False)),
    "none": ("`return`", lambda *given: None),
}  # fmt: skip


@pytest.mark.parametrize("solution", [one_by_one, layer])
def test_a_layer_of_complex_words(solution):
    verdict = check_complex_layer(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), LAYER_WRONG.values(), ids=LAYER_WRONG)
def test_mistakes_of_a_complex_layer_by_name(words, solution, refuses):
    refuses(check_complex_layer(solution), words)
