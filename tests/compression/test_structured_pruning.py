"""Whole units and heads: masked, then taken out, with equal outputs."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import attnlab
from attnlab.compression.structured_pruning import StructuredPruning
from attnlab.compression.units import units_of


def randomised(module: nn.Module) -> nn.Module:
    """Biases too, which begin as zeros."""
    torch.manual_seed(1)
    for p in module.parameters():
        p.data = torch.randn_like(p) / 3
    return module.double().eval()


MODULES = {
    "sequential": lambda: nn.Sequential(nn.Linear(6, 11), nn.Sigmoid(), nn.Linear(11, 6)),
    "mlp": lambda: attnlab.build("mlp", dim=6, hidden=11),
    "gated": lambda: attnlab.build("gated", dim=6, hidden=11),
    "full": lambda: attnlab.build("full", dim=6, heads=3),
    "grouped": lambda: attnlab.build("multi_query", dim=12, heads=6, kv_heads=3),
    "rotated": lambda: attnlab.build(
        "full", dim=12, heads=3, positions=attnlab.build("rope", dim=12, heads=3)
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_masked_module_is_the_smaller_dense_one(name: str) -> None:
    made = randomised(MODULES[name]())
    compress = StructuredPruning(0.4)
    masked = compress(made)
    smaller = compress.remove(masked)
    x = torch.randn(2, 5, 12 if name in ("grouped", "rotated") else 6, dtype=torch.float64)
    torch.testing.assert_close(smaller(x), masked(x))
    assert not torch.allclose(masked(x), made(x))
    parameters = [sum(p.numel() for p in each.parameters()) for each in (smaller, made)]
    assert parameters[0] < 0.75 * parameters[1]


def test_the_rows_that_stay_are_those_of_torch() -> None:
    W = torch.randn(13, 7)
    layer = nn.Linear(7, 13)
    layer.weight.data = W.clone()
    prune.ln_structured(layer, "weight", 8, n=2, dim=0)
    ours = attnlab.card("structured_pruning").forms["ranked"](W, kept=5 / 13)
    assert torch.equal(ours, layer.weight)


def test_the_bias_of_a_removed_unit_goes_too() -> None:
    made = randomised(attnlab.build("mlp", dim=6, hidden=11))
    masked = StructuredPruning(cut=[(0, 4)])(made)
    assert masked.expand.bias[4] == 0
    assert masked.expand.weight[4].count_nonzero() == 0
    assert masked.contract.weight[:, 4].count_nonzero() == 0
    assert masked.contract.weight.count_nonzero() == 6 * 10


def test_a_silent_head_is_a_removed_one_and_the_bias_stays() -> None:
    layer = randomised(attnlab.build("full", dim=6, heads=3))
    layer.heads.output.bias = nn.Parameter(torch.randn(6, dtype=torch.float64))
    compress = StructuredPruning(units="heads", cut=[(0, 1)])
    smaller = compress.remove(compress(layer))
    assert smaller.heads.heads == smaller.heads.kv_heads == 2
    for projection in (smaller.heads.query, smaller.heads.key, smaller.heads.value):
        assert projection.weight.shape == (4, 6)
    assert smaller.heads.output.weight.shape == (6, 4)
    assert torch.equal(smaller.heads.output.bias, layer.heads.output.bias)
    rows = [0, 1, 4, 5]
    assert torch.equal(smaller.heads.value.weight, layer.heads.value.weight[rows])


def test_a_model_loses_units_and_heads_and_answers_the_same() -> None:
    model = randomised(attnlab.TinyTransformer(11, dim=12, heads=3, layers=2))
    compress, tokens = StructuredPruning(0.5), torch.arange(8)[None]
    masked = compress(model)
    smaller = compress.remove(masked)
    torch.testing.assert_close(smaller(tokens), masked(tokens))
    assert [p.kind for p in units_of(model)] == ["heads", "hidden"] * 2
    assert smaller.decoder.blocks[0].feed_forward.expand.out_features == 24
    smaller(tokens).sum().backward()


def test_the_matrices_take_what_is_left() -> None:
    compress = StructuredPruning(0.5)
    masked = compress(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6)))
    smaller = compress.remove(masked)
    matrices = sum(4 * smaller[at].weight.numel() for at in (0, 2))
    assert compress.bytes(masked) == matrices + 4
    assert compress.bytes(smaller) == matrices


def test_what_cannot_be_taken_out_is_said() -> None:
    compress = StructuredPruning(units="heads")
    with pytest.raises(ValueError, match="has no heads that could be removed"):
        compress(attnlab.build("mlp", dim=6))
    with pytest.raises(ValueError, match="has no hidden units"):
        StructuredPruning()(nn.Linear(3, 5))
    none = StructuredPruning(0.0)
    masked = none(attnlab.build("mlp", dim=6))
    with pytest.raises(ValueError, match="leave at least one"):
        none.remove(masked)
    biased = attnlab.build(
        "full", dim=6, heads=3, positions=attnlab.build("t5_bias", dim=6, heads=3)
    )
    with pytest.raises(ValueError, match="something for each head"):
        compress.remove(compress(biased))
    with pytest.raises(ValueError, match=r"more than its projections: heads\.gate\.weight"):
        compress.remove(compress(attnlab.build("gated_attention", dim=6, heads=3)))
    with pytest.raises(ValueError, match="has no heads that could be removed"):
        compress(attnlab.build("multi_head_latent", dim=6, heads=3))
    with pytest.raises(ValueError, match="cut names unit 3 of place 0, and the 1 places"):
        StructuredPruning(units="heads", cut=[(0, 3)])(attnlab.build("full", dim=6, heads=3))
    with pytest.raises(ValueError, match="kept should be a share"):
        StructuredPruning(-0.1)
