"""Under padding, maps and noted weights stand at the caller's positions: for every mechanism."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.core.card import Card
from attnlab.core.probe import record
from attnlab.lens.mixing import Mixing, mixing_matrix
from tests.test_claims import CARDS, DIM, OnExample, extra_inputs, module, module_forms

N = 11
REAL = torch.tensor([[1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1]]) > 0
NOTED_OTHERWISE = {
    "sinkhorn": "a column stands for a block",
    "compressive_transformer": "a column may stand for a vector that was compressed",
    "dynamic_convolution": "the taps that meet padding meet zeros",
    "lightweight_convolution": "the taps that meet padding meet zeros",
}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_padded_tokens_have_no_row_and_no_column(card: Card) -> None:
    for form in module_forms(card):
        layer = module(card, 0, **form)
        x = torch.randn(2, N, DIM, dtype=torch.float64)
        with record() as notes:
            out = layer(x, REAL)
        found = mixed(layer, card, x, REAL)
        pairs = REAL[:, None, :, None] & REAL[:, None, None]
        maps = four(found)
        if maps.shape[-1] != N:  # of values that the layer makes
            assert (maps.masked_select(~REAL[:, None, :, None]) == 0).all()
            continue
        assert (maps.masked_select(~pairs) == 0).all(), form
        for row, real in enumerate(REAL):  # where padding is skipped, the map is that of the others
            short = x[row : row + 1, real]
            if torch.allclose(layer(short)[0], out[row, real], rtol=1e-9, atol=1e-9):
                alone = mixed(layer, card, short, None)
                assert found.exact == alone.exact
                torch.testing.assert_close(maps[row][:, real][:, :, real], four(alone)[0])
        if card.name not in NOTED_OTHERWISE:
            for weights in squares(notes):
                read = weights.masked_fill(~REAL[:, None, :, None], 0)
                assert (read.masked_select(~pairs) == 0).all(), form


def mixed(layer: nn.Module, card: Card, x: Tensor, padding: Tensor | None) -> Mixing:
    if not isinstance(layer, OnExample):
        return mixing_matrix(layer, x, padding=padding)
    real = torch.ones(x.shape[:2], dtype=torch.bool) if padding is None else padding
    return mixing_matrix(layer.layer, x, padding=padding, **extra_inputs(card, real))


def four(found: Mixing) -> Tensor:
    """(b, h, n, n), one map for all heads where there are none."""
    return found.matrix if found.matrix.dim() == 4 else found.matrix[:, None]


def squares(notes: Any) -> list[Tensor]:
    """The noted weights of all pairs of positions."""
    noted = [value for name, value in notes if name == "weights" and isinstance(value, Tensor)]
    assert all(value.shape[0] == len(REAL) for value in noted if value.shape[-2:] == (N, N))
    return [value for value in noted if value.shape[-2:] == (N, N)]
