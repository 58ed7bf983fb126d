"""Lesson 35's checks: a count, padding, a mixing without loss, a block, the fast transform."""

import math

import torch
from torch.nn import functional as F

from attnlab.exercises import (
    check_fast_transform,
    check_fnet_block,
    check_hartley,
    check_padded_mixing,
)
from attnlab.mechanisms.convolution import fnet
from tests.exercises.frame import answers_to


def mix(x, real):
    """By the library, which leaves padding out."""
    return fnet.FNet(x.shape[-1])(x, real) * real[..., None]


def hartley(x):
    y = torch.fft.fft(x, dim=0)
    z = torch.fft.fft(y.real - y.imag)
    return z.real - z.imag


def fast(x):
    def transform(y):
        n = len(y)
        if n == 1:
            return y
        turn = torch.exp(-2j * math.pi * torch.arange(n // 2) / n)[:, None].to(torch.complex128)
        even, odd = transform(y[0::2]), turn * transform(y[1::2])
        return torch.cat([even + odd, even - odd])

    return torch.view_as_real(transform(x.to(torch.complex128))).movedim(-1, 0)


def by_matrix(x):
    angle = 2 * math.pi * torch.outer(torch.arange(len(x)), torch.arange(len(x))).to(x) / len(x)
    return torch.stack([angle.cos() @ x, -angle.sin() @ x])


def by_library(x):
    return torch.view_as_real(torch.fft.fft(x, dim=0)).movedim(-1, 0)


def block(x, W1, W2):
    y = F.layer_norm(x + fnet.naive(x[None])[0], (x.shape[1],))
    return F.layer_norm(y + F.gelu(y @ W1) @ W2, (x.shape[1],))


RIGHT = [
    (check_padded_mixing, mix),
    (check_hartley, hartley),
    (check_fast_transform, fast),
    (check_fnet_block, block),
]
TABLES = [
    (
        check_fast_transform,
        {
            "matrix": ("takes about n log₂ n", by_matrix),
            "library": ("is what you build here", by_library),
        },
    ),
]

TestAnswers = answers_to(RIGHT, TABLES)
