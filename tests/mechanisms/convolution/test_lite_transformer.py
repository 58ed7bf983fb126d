"""Long-short range attention: two halves that do not meet."""

import pytest
import torch
from torch import nn

from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.convolution import lightweight_convolution
from attnlab.mechanisms.convolution.lite_transformer import (
    FORMS,
    LiteTransformerOptions,
    LongShortAttention,
)
from attnlab.mechanisms.dense import full


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_attention_beside_a_lightweight_convolution(form: str, causal: bool) -> None:
    q, k = torch.randn(2, 2, 3, 9, 4, dtype=torch.float64)
    v, u = torch.randn(2, 2, 3, 9, 5, dtype=torch.float64)
    weight = torch.randn(3, 4, dtype=torch.float64)
    out = FORMS[form](q, k, v, u, weight, causal=causal)
    mask = torch.ones(9, 9, dtype=torch.bool).tril() if causal else None
    torch.testing.assert_close(out[:, :3], full.naive(q, k, v, mask=mask))
    torch.testing.assert_close(out[:, 3:], lightweight_convolution.naive(weight, u, causal=causal))


def test_the_halves_do_not_meet() -> None:
    layer = LongShortAttention(16, 4).double()
    x = torch.randn(1, 11, 16, dtype=torch.float64, requires_grad=True)
    out = layer(x)
    (grad,) = torch.autograd.grad(out[..., :8].square().sum(), x, retain_graph=True)
    assert (grad[..., 8:] == 0).all()
    assert (grad[..., :8] != 0).all()
    (grad,) = torch.autograd.grad(out[..., 8:].square().sum(), x)
    assert (grad[..., :8] == 0).all()
    assert (grad[..., 8:] != 0).all()


def test_its_map_has_heads_that_see_all_and_heads_that_see_a_band() -> None:
    layer = LongShortAttention(16, 4, options=LiteTransformerOptions(kernel=3)).double()
    found = mixing_matrix(layer, torch.randn(1, 9, 16, dtype=torch.float64))
    assert found.exact
    assert (found.matrix[:, :2] > 0).all()
    near = (torch.arange(9) - torch.arange(9)[:, None]).abs() <= 1
    assert (found.matrix[:, 2:][..., ~near] == 0).all()
    assert (found.matrix[:, 2:][..., near] > 0).all()


def test_a_bias_does_not_make_padding_visible() -> None:
    layer = LongShortAttention(8, 2, bias=True).double()
    nn.init.ones_(layer.heads.value.second.bias)
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    padding = torch.arange(9)[None] < 5
    torch.testing.assert_close(layer(x, padding)[:, :5], layer(x[:, :5]))


def test_decoding_keeps_the_keys_and_few_inputs() -> None:
    layer = LongShortAttention(8, 2, causal=True, options=LiteTransformerOptions(kernel=4)).double()
    _, state = layer.step(torch.randn(3, 20, 8, dtype=torch.float64))
    assert state.keys.shape == (3, 1, 20, 4)
    assert state.inputs.shape == (3, 1, 3, 4)
    with pytest.raises(ValueError, match="causal=True"):
        LongShortAttention(8, 2).step(torch.randn(1, 1, 8))


def test_an_odd_number_of_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="heads=3 is odd"):
        LongShortAttention(12, 3)
