"""Sinusoidal positions: by hand, translation as a rotation, products by distance."""

import math

import pytest
import torch

import attnlab
from attnlab.mechanisms.positions.sinusoidal import table


def test_by_hand() -> None:
    p = table(torch.arange(13), 7)
    assert p.shape == (13, 7)
    assert p[11, 4].item() == pytest.approx(math.sin(11 / 10000 ** (4 / 7)))
    assert p[11, 3].item() == pytest.approx(math.cos(11 / 10000 ** (2 / 7)))


def test_products_depend_on_the_distance() -> None:
    gram = table(torch.arange(30) + 500, 16) @ table(torch.arange(30) + 500, 16).T
    for distance in range(30):
        frequencies = 10000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
        expected = (distance * frequencies).cos().sum()
        torch.testing.assert_close(gram.diagonal(distance), expected.expand(30 - distance))


def test_moving_on_is_a_rotation() -> None:
    near, far = table(torch.arange(9), 8), table(torch.arange(9) + 5, 8)
    angle = 5 * 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    sin, cos = near[:, 0::2], near[:, 1::2]
    torch.testing.assert_close(far[:, 0::2], sin * angle.cos() + cos * angle.sin())
    torch.testing.assert_close(far[:, 1::2], cos * angle.cos() - sin * angle.sin())


def test_it_is_added_to_tokens() -> None:
    x, at = torch.randn(2, 5, 6), torch.arange(5)
    layer = attnlab.build("sinusoidal", dim=6)
    torch.testing.assert_close(layer(x, at) - x, table(at, 6).float().expand(2, -1, -1))
