"""Learned positions: a row of the table for each position, and none beyond it."""

import pytest
import torch

import attnlab


def test_rows_of_the_table_are_added() -> None:
    layer, x = attnlab.build("learned", dim=6, max_len=9), torch.randn(2, 3, 6)
    at = torch.tensor([[0, 8, 3], [5, 5, 1]])
    torch.testing.assert_close(layer(x, at), x + layer.weight[at])
    torch.testing.assert_close(layer(x, at[0]), x + layer.weight[at[0]])


@pytest.mark.parametrize("position", [9, -1, 10**6])
def test_positions_outside_the_table_are_refused(position: int) -> None:
    layer = attnlab.build("learned", dim=6, max_len=9)
    with pytest.raises(
        ValueError, match=rf"positions .* 0 … 8, .* {position} does not; .* max_len"
    ):
        layer(torch.randn(1, 1, 6), torch.tensor([position]))
