"""Lesson 35's checks: a count, the mixing by waves, what it keeps, a whole block."""

import pytest
import torch
from torch.nn import functional as F

from attnlab.exercises import (
    check_fnet_block,
    check_fourier_mixing,
    check_kept,
    check_transform_flops,
    fourier,
)
from attnlab.mechanisms.spectral import fnet
from tests.exercises.frame import answers_to, named, numbers_of


def mix(x):
    return torch.fft.fft2(x).real


def kept(x):
    """By the transform itself, twice."""
    return mix(mix(x)) / x.numel()


def block(x, W1, W2):
    y = F.layer_norm(x + fnet.naive(x[None])[0], (x.shape[1],))
    return F.layer_norm(y + F.gelu(y @ W1) @ W2, (x.shape[1],))


RIGHT = [
    (check_fourier_mixing, mix),
    (check_kept, kept),
    (check_fnet_block, block),
    (check_transform_flops, 2_621_440),
]
TABLES = [
    (check_fourier_mixing, named(fourier._MIXED_MISTAKEN)),
    (check_kept, named(fourier._KEPT_MISTAKEN)),
    (check_fnet_block, named(fourier._BLOCK_MISTAKEN)),
    (check_transform_flops, numbers_of(fourier._FLOPS_MISTAKEN)),
]

TestAnswers = answers_to(RIGHT, TABLES)


@pytest.mark.parametrize("check", [check for check, _ in TABLES])
def test_an_answer_not_yet_given_is_no_mistake(check):
    assert not check(...).right
