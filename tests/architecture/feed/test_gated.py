"""Gated feed-forward layers: PyTorch's own GLU, the bilinear layer, and equal parameters."""

import math

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab.architecture.feed.gated import CURVES, Gated, naive
from attnlab.architecture.feed.mlp import MLP
from attnlab.models.tiny import TinyTransformer

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_glu_is_pytorchs() -> None:
    """``F.glu`` takes what is gated first, then the gate."""
    layer = Gated(6, gate="sigmoid").double()
    both = torch.cat((layer.expand(X), layer.opens(X)), dim=-1)
    torch.testing.assert_close(layer(X), layer.contract(F.glu(both)))


@pytest.mark.parametrize("gate", CURVES)
def test_one_hidden_unit_in_plain_numbers(gate: str) -> None:
    curves = {
        "silu": lambda z: z / (1 + math.exp(-z)),
        "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
        "relu": lambda z: max(z, 0.0),
        "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
        "gelu_tanh": lambda z: z * (1 + math.tanh(math.sqrt(2 / math.pi) * near(z))) / 2,
        "none": lambda z: z,
    }

    def near(z: float) -> float:
        return z + 0.044715 * z**3

    for z, v in ((0.7, -2.0), (-1.3, 0.5)):
        x, W, V = torch.tensor([[[1.0]]]), torch.tensor([[z]]), torch.tensor([[v]])
        out = naive(x, W, V, torch.tensor([[3.0]]), gate=gate)  # type: ignore[arg-type]
        assert out.item() == pytest.approx(3 * curves[gate](z) * v, rel=1e-5)


def test_a_bilinear_layer_is_quadratic_and_needs_no_names_for_its_two_products() -> None:
    layer = Gated(6, gate="none").double()
    torch.testing.assert_close(layer(3 * X), 9 * layer(X))
    before = layer(X)
    layer.opens, layer.expand = layer.expand, layer.opens
    torch.testing.assert_close(layer(X), before)


@pytest.mark.parametrize("dim", [12, 48, 768])
def test_two_thirds_of_the_width_keep_the_parameters_of_an_mlp(dim: int) -> None:
    """Its biases apart."""
    with torch.device("meta"):
        gated, mlp = (layer(dim).parameters() for layer in (Gated, MLP))
    assert sum(p.numel() for p in gated) == sum(p.numel() for p in mlp if p.ndim == 2)


def test_a_model_takes_it_by_name_and_refuses_an_unknown_gate() -> None:
    model = TinyTransformer(11, dim=8, heads=2, layers=2, feed="swiglu", hidden=5)
    assert model.decoder.blocks[1].feed_forward.contract.in_features == 5
    with pytest.raises(ValueError, match="there is no gate 'swish'; known: silu"):
        attnlab.build("gated", dim=8, gate="swish")
