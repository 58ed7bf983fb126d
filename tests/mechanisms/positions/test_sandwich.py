"""Sandwich: the Gram matrix of sinusoids, weaker from head to head."""

import pytest
import torch

import attnlab
from attnlab.mechanisms.positions.sandwich import SandwichOptions
from attnlab.mechanisms.positions.sinusoidal import table


def test_biases_are_the_products_of_sinusoids() -> None:
    at = torch.arange(20) + 300
    p = table(at, 16)
    bias = attnlab.build("sandwich", dim=8, heads=4, width=16).double()(at, at)
    for head in range(4):
        torch.testing.assert_close(bias[head], p @ p.T / (8 * (head + 1) / 4))


def test_the_nearest_is_favoured() -> None:
    bias = attnlab.build("sandwich", dim=8, heads=2)(torch.tensor([500]), torch.arange(501))
    assert (bias[:, 0].argmax(-1) == 500).all()
    assert (bias[:, 0, 499] > bias[:, 0, 450]).all()
    assert (bias[:, 0, 450] > bias[:, 0, 100]).all()


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width should be even"):
        SandwichOptions(width=5)
