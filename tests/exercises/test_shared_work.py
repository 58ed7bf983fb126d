"""Lesson 38's checks: parameters of two halves, a band, a near share, dynamic convolution."""

import pytest
import torch

from attnlab.exercises import (
    check_band,
    check_dynamic_layer,
    check_near_share,
    shared_work,
)
from attnlab.mechanisms.convolution import dynamic_convolution, lightweight_convolution


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
TABLES = [
    (check_band, shared_work._BAND_MISTAKEN),
    (check_near_share, shared_work._NEAR_MISTAKEN),
    (check_dynamic_layer, shared_work._DYNAMIC_MISTAKEN),
]


@pytest.mark.parametrize(("check", "function"), RIGHT)
def test_right_answers(check, function):
    assert check(function).right, check(function).message


@pytest.mark.parametrize(
    ("check", "sentence", "mistake"), [(c, *m) for c, table in TABLES for m in table]
)
def test_each_mistake_is_named(check, sentence, mistake):
    found = check(mistake)
    assert not found.right
    assert found.message == sentence
