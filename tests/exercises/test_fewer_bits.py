"""Lesson 81: bytes of integers, numbers of levels, a product of integers."""

import torch

from attnlab.exercises import check_integer_product, check_quantized_bytes, check_rounded
from tests.exercises.frame import answers_to


def rounded(x, bits):
    """The nearest of all levels, which are written down."""
    low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
    s = (high - low) / (2**bits - 1)
    first = round(low / s)
    levels = s * torch.arange(first, first + 2**bits, dtype=torch.float64)
    return levels[(x.double()[:, None] - levels).abs().argmin(1)].to(x)


def product(X, s_x, z_x, W, s_w, z_w):
    """Of the numbers."""
    numbers = s_w[:, None] * (W.to(s_w) - z_w.to(s_w)[:, None])
    return s_x * (X.to(s_w) - z_x) @ numbers.T


TestAnswers = answers_to(
    [
        (check_rounded, rounded),
        (check_integer_product, product),
        (check_quantized_bytes, 526_848),
    ]
)
