"""Lesson 31's checks: a half-life, a push over the middle, two pieces of a sum, time mixing."""

import math

import torch

from attnlab.exercises import check_joined, check_time_mixing, states
from attnlab.mechanisms.recurrence.rwkv import RWKV, State
from tests.exercises.frame import answers_to


def joined(first, second, w, tokens):
    """In plain exponents, which are small here."""
    out = torch.empty_like(first)
    before, after = torch.exp(first[2] - tokens * w), torch.exp(second[2])
    out[2] = torch.log(torch.stack((before, after)).amax(0))
    for row in (0, 1):
        out[row] = (before * first[row] + after * second[row]) / torch.exp(out[2])
    return out


def mix(x, W_r, W_k, W_v, W_o, mu, w, u, state):
    """By the library's layer."""
    layer = RWKV(x.shape[1], form="recurrent").to(x.dtype)
    with torch.no_grad():
        matrices = (layer.receptance, layer.key, layer.heads.value, layer.heads.output)
        for part, W in zip(matrices, (W_r, W_k, W_v, W_o), strict=True):
            weight = part.weight if hasattr(part, "weight") else next(part.parameters())
            weight.copy_(W.T)
        layer.shift_receptance[:], layer.shift_key[:], layer.shift_value[:] = mu
        layer.decay[:], layer.bonus[:] = w.log(), u
        y, after = layer.step(x[None], State(*(row[None] for row in state)))
    return y[0], torch.cat(tuple(after))


TestAnswers = answers_to([(check_joined, joined), (check_time_mixing, mix)])


def test_the_push_is_just_enough():
    """A little more brings the unit below zero, a little less does not."""
    h = states.upper(1.5)
    for more, sign in ((1.01, -1), (0.99, 1)):
        after = 0.5 * h + 0.5 * math.tanh(1.5 * h - more * 2.5757)
        assert math.copysign(1, after) == sign
