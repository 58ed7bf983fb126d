"""Stacked and flattened feed-forward layers, beside the one wide layer that they replace."""

import pytest
import torch
from torch.nn import functional as F

from attnlab.architecture.feed.flattened import Flattened
from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.feed.stacked import Stacked, naive
from attnlab.models.counts import count
from attnlab.models.tiny import TinyTransformer

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def weights(layer: Stacked) -> list[torch.Tensor]:
    names = ("expand.weight", "expand.bias", "contract.weight", "contract.bias")
    return [torch.stack([each.get_parameter(name) for each in layer.narrow]) for name in names]


def test_the_layer_is_its_equation_step_by_step() -> None:
    layer = Stacked(6, hidden=7, stacks=3).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    y = X
    for narrow in layer.narrow:
        y = y + narrow.contract(F.relu(narrow.expand(y)))
    torch.testing.assert_close(layer(X), y - X)
    torch.testing.assert_close(naive(X, *weights(layer)), y - X)


def test_one_stack_of_hidden_width_dim_is_the_flattened_layer() -> None:
    stacked, flat = Stacked(6, stacks=1).double(), Flattened(6).double()
    flat.load_state_dict(stacked.narrow[0].state_dict())
    torch.testing.assert_close(stacked(X), flat(X))


def test_stacks_have_the_parameters_of_one_wide_layer_but_for_the_biases() -> None:
    with torch.device("meta"):
        both = [sum(p.numel() for p in m(48).parameters() if p.ndim == 2) for m in (Stacked, MLP)]
    assert both[0] == both[1] == 8 * 48**2


@pytest.mark.parametrize(("feed", "share"), [("mlp", 6 / 14), ("flattened", 6 / 8)])
def test_attentions_share_of_a_layer_as_long_as_it_is_wide(feed: str, share: float) -> None:
    dim = 32
    model = TinyTransformer(11, dim=dim, heads=2, layers=1, feed=feed, max_len=dim)
    flops = {row.part.split(".")[-1]: row.flops for row in count(model, dim)}
    assert flops["attention"] / (flops["attention"] + flops["feed_forward"]) == share


def test_a_model_begins_with_every_inner_matrix_smaller() -> None:
    torch.manual_seed(0)
    model = TinyTransformer(11, dim=32, heads=2, layers=8, feed="stacked")
    std = [each.contract.weight.std() for each in model.decoder.blocks[0].feed_forward.narrow]
    uniform = 32**-0.5 / 3**0.5  # PyTorch's, then 1/√4 for the stacks and 1/√16 for the branches
    torch.testing.assert_close(torch.stack(std), torch.full((4,), uniform / 8), rtol=0.1, atol=0)
