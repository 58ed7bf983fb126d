"""Lesson 41's checks: a word as a wave, and the score of two complex vectors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_complex_score, check_wave


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
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "solution"), RIGHT)
def test_written_differently_is_right(check: Callable, solution: Callable) -> None:
    verdict = check(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "words", "solution"), WRONG, ids=[w[1] for w in WRONG])
def test_mistakes_by_name(
    check: Callable, words: str, solution: Any, refuses: Callable[..., None]
) -> None:
    refuses(check(solution), words)


@pytest.mark.parametrize(("check", "table"), TABLES)
def test_messages_differ(check: Callable, table: dict, tells_apart: Callable) -> None:
    tells_apart(check, table)
