"""Lesson 41's checks: a word as a wave, and the score of two complex vectors."""

from collections.abc import Callable
from typing import Any

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


def layer(r, omega, a, b, c):
    x = r * torch.exp(1j * omega * torch.arange(len(r), dtype=r.dtype)[:, None])
    q, k, v = (x @ torch.complex(*m) for m in (a, b, c))
    out = ((q @ k.mH).abs() / k.shape[-1] ** 0.5).softmax(-1).to(v.dtype) @ v
    return torch.cat((out.real, out.imag), -1)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_wave, wave),
    (check_wave, by_loops),
    (check_complex_score, score),
    (check_complex_score, score_by_parts),
    (check_complex_layer, one_by_one),
    (check_complex_layer, layer),
]

WAVE_WRONG: dict[str, tuple[str, Any]] = {
    "complex": ("complex", lambda r, w, t, p: r * torch.exp(1j * (w * p + t))),
}

TestAnswers = answers_to(RIGHT, [(check_wave, WAVE_WRONG)])
