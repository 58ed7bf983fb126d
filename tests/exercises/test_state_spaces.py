"""Lesson 36's checks: a half-life, a kernel of modes, two spans joined, a layer that selects."""

import math

import pytest
import torch
from torch.nn import functional as F

from attnlab.exercises import (
    check_joined_spans,
    check_mode_half_life,
    check_mode_kernel,
    check_selective_layer,
    state_spaces,
)
from attnlab.mechanisms.spectral import selective_scan
from tests.exercises.frame import answers_to, named, numbers_of


def kernel(A, C, step, n):
    """The answer of the recurrence to a single 1."""
    decay, out = torch.exp(step * A), []
    h = torch.zeros_like(A)
    for t in range(n):
        h = decay * h + (decay - 1) / A * (t == 0)
        out.append((C * h + (C * h).conj()).sum().real)
    return torch.stack(out)


def joined(first, second):
    """Each span as a matrix that takes (state, 1) to (state, 1)."""
    out = torch.empty_like(first)
    for channel in range(first.shape[1]):
        one, two = (
            torch.stack((span[:, channel], torch.tensor([0.0, 1.0], dtype=span.dtype)))
            for span in (first, second)
        )
        out[:, channel] = (two @ one)[0]
    return out


def layer(u, W_step, bias, W_B, W_C, A, D, state):
    """By the library's scan, token by token; the state's own part is added to its output."""
    steps = u @ W_step + bias
    given = (u[None], (-A).log(), steps[None], (u @ W_B)[None], (u @ W_C)[None], D)
    decays = torch.cumprod((F.softplus(steps)[:, :, None] * A).exp(), 0) * state
    y, h = selective_scan.advance(*given, torch.zeros_like(state)[None], selective_scan.Selective())
    return y[0] + torch.einsum("tdr,tr->td", decays, u @ W_C), h[0] + decays[-1]


RIGHT = [
    (check_mode_kernel, kernel),
    (check_joined_spans, joined),
    (check_selective_layer, layer),
    (check_mode_half_life, 200 * math.log(2)),
    (check_mode_half_life, 139),
]
TABLES = [
    (check_mode_kernel, named(state_spaces._KERNEL_MISTAKEN)),
    (check_joined_spans, named(state_spaces._JOINED_MISTAKEN)),
    (check_selective_layer, named(state_spaces._LAYER_MISTAKEN)),
    (check_mode_half_life, numbers_of(state_spaces._HALF_LIFE_MISTAKEN)),
]
CHECKS = [check for check, _ in TABLES]

TestAnswers = answers_to(RIGHT, TABLES)


def test_an_unknown_mistake_says_where():
    found = check_selective_layer(lambda *given: (2 * layer(*given)[0], layer(*given)[1]))
    assert not found.right
    assert "`y`" in found.message


@pytest.mark.parametrize("check", CHECKS)
def test_an_answer_not_yet_given_is_no_mistake(check):
    assert not check(...).right
