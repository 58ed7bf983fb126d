"""What is watched of a sparse form is what it mixes with, though it never held the weights."""

import pytest
import torch

import attnlab
from attnlab.core.card import Card
from attnlab.lens.mixing import mixing_matrix

SPARSE = [card for card in attnlab.cards() if "log_sum_exp" in card.notes.get("blocked", ())]


def test_there_are_sparse_forms() -> None:
    assert {"sparse_transformer", "longformer", "bigbird"} <= {card.name for card in SPARSE}


@pytest.mark.parametrize("card", SPARSE, ids=lambda card: card.name)
def test_watched_weights_are_the_mixing_matrix(card: Card) -> None:
    torch.manual_seed(0)
    for causal in {"never": [False], "optional": [False, True], "always": [True]}[card.causal]:
        layer = attnlab.build(card.name, dim=12, heads=2, causal=causal).double()
        x = torch.randn(2, 29, 12, dtype=torch.float64)
        padding = torch.arange(29) < torch.tensor([[29], [17]])
        with attnlab.watch(layer) as seen:
            layer(x, padding)
        (found,) = seen
        mixing = mixing_matrix(layer, x, padding=padding)
        assert mixing.exact
        weights = found.weights * padding[:, None, :, None]
        torch.testing.assert_close(weights, mixing.matrix, rtol=1e-6, atol=1e-6)


def test_two_kinds_of_scores_have_no_single_log_sum_exp() -> None:
    layer = attnlab.build("longformer", dim=12, heads=2, window=4, global_positions=(0,))
    with attnlab.watch(layer) as seen:
        layer(torch.randn(1, 29, 12))
    with pytest.raises(ValueError, match="mixing_matrix"):
        _ = next(iter(seen)).weights
