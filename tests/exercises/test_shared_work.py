"""Lesson 38's checks: parameters of two halves, a band, a near share, dynamic convolution."""

import torch

from attnlab.exercises import check_band, check_dynamic_layer, check_near_share
from attnlab.mechanisms.convolution import dynamic_convolution, lightweight_convolution
from tests.exercises.frame import answers_to


def band(w, n):
    """Column by column, by the library's form."""
    eye = torch.eye(n, dtype=w.dtype)
    return lightweight_convolution.naive(w[None], eye[None, None], causal=True)[0, 0]


def near(weights, r):
    """Row by row."""
    return sum(row[max(0, i - r + 1) : i + 1].sum() for i, row in enumerate(weights)) / len(weights)


def layer(x, W, V, Wq, Wo, h, k):
    """By the library's form."""
    u = (x @ W) * torch.sigmoid(x @ V)
    logits, heads = ((y[None].unflatten(2, (h, -1)).transpose(1, 2)) for y in (u @ Wq, u))
    mixed = dynamic_convolution.naive(logits, heads, causal=True)
    return mixed.transpose(1, 2).flatten(2)[0] @ Wo


RIGHT = [(check_band, band), (check_near_share, near), (check_dynamic_layer, layer)]
TestAnswers = answers_to(RIGHT)
