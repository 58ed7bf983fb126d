"""Lightweight convolution: the sum, its special cases, and PyTorch's own convolution."""

import math

import pytest
import torch
from torch import Tensor, nn

from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.convolution import lightweight_convolution
from attnlab.mechanisms.convolution.lightweight_convolution import (
    FORMS,
    LightweightConvolution,
    LightweightOptions,
)


def by_sums(weight: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Equation 5 with its own indices, which count from 1, for one sequence (h, n, e)."""
    (h, k), n = weight.shape, v.shape[1]
    out = torch.zeros_like(v)
    for head in range(h):
        powers = [math.exp(float(each)) for each in weight[head]]
        for i in range(1, n + 1):
            for j in range(1, k + 1):
                at = i + j - k if causal else i + j - math.ceil((k + 1) / 2)
                if 1 <= at <= n:
                    out[head, i - 1] += powers[j - 1] / sum(powers) * v[head, at - 1]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_printed_sum(form: str, k: int, causal: bool) -> None:
    weight = torch.randn(3, k, dtype=torch.float64)
    v = torch.randn(2, 3, 8, 2, dtype=torch.float64)
    out = FORMS[form](weight, v, causal=causal)
    for row in range(2):
        torch.testing.assert_close(out[row], by_sums(weight, v[row], causal=causal))


@pytest.mark.parametrize("form", FORMS)
def test_one_large_logit_shifts_the_sequence(form: str) -> None:
    weight = torch.full((1, 5), -1e3, dtype=torch.float64)
    weight[0, 1] = 0  # the second of five taps of a causal layer: three positions before
    v = torch.randn(1, 1, 9, 4, dtype=torch.float64)
    out = FORMS[form](weight, v, causal=True)
    assert torch.equal(out[:, :, 3:], v[:, :, :-3])
    assert (out[:, :, :3] == 0).all()


def test_rows_inside_sum_to_one_and_those_at_the_ends_to_less() -> None:
    layer = LightweightConvolution(8, 2, options=LightweightOptions(kernel=5)).double()
    sums = mixing_matrix(layer, torch.randn(1, 11, 8, dtype=torch.float64)).matrix.sum(-1)
    torch.testing.assert_close(sums[..., 2:-2], torch.ones(1, 2, 7, dtype=torch.float64))
    assert (sums[..., [0, 1, -2, -1]] < 1 - 1e-6).all()


def test_its_map_is_exact_a_band_and_the_same_along_each_diagonal() -> None:
    layer = LightweightConvolution(8, 2, causal=True, options=LightweightOptions(kernel=3)).double()
    found = mixing_matrix(layer, torch.randn(2, 9, 8, dtype=torch.float64))
    assert found.exact
    taps = layer.weight.softmax(-1)
    for back in range(9):
        diagonal = found.matrix.diagonal(-back, dim1=-2, dim2=-1)
        expected = taps[:, 2 - back] if back < 3 else torch.zeros(2, dtype=torch.float64)
        torch.testing.assert_close(diagonal, expected[:, None].expand_as(diagonal))
    assert (found.matrix.triu(1) == 0).all()


def test_channels_of_a_head_are_consecutive() -> None:
    layer = LightweightConvolution(6, 2, causal=True, options=LightweightOptions(kernel=2)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 50.0], [50.0, 0.0]]))  # the token; the one before
        layer.heads.output.weight.copy_(torch.eye(6))
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    out, inputs = layer(x), layer.inputs(x)
    torch.testing.assert_close(out[..., :3], inputs[..., :3])
    torch.testing.assert_close(out[:, 1:, 3:], inputs[:, :-1, 3:])


@pytest.mark.parametrize("form", FORMS)
def test_a_head_per_channel_without_softmax_is_pytorchs_depthwise_convolution(form: str) -> None:
    options = LightweightOptions(kernel=5, normalize=False)
    layer = LightweightConvolution(6, 6, form=form, options=options).double()
    peer = nn.Conv1d(6, 6, 5, padding=2, groups=6, bias=False).double()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    with torch.no_grad():
        peer.weight.copy_(layer.weight[:, None])
        expected = layer.heads.output(peer(layer.inputs(x).mT).mT)
    torch.testing.assert_close(layer(x), expected)


def test_a_bias_does_not_make_padding_visible() -> None:
    layer = LightweightConvolution(6, 2, bias=True).double()
    nn.init.ones_(layer.inputs.bias)
    x = torch.randn(1, 9, 6, dtype=torch.float64)
    padding = torch.arange(9)[None] < 5
    out = layer(x, padding)
    torch.testing.assert_close(out[:, :5], layer(x[:, :5]))
    assert (out[:, 5:] == 0).all()


def test_the_state_holds_no_more_than_the_kernel_reads() -> None:
    layer = LightweightConvolution(6, 2, causal=True, options=LightweightOptions(kernel=4)).double()
    _, state = layer.step(torch.randn(3, 50, 6, dtype=torch.float64))
    assert state.inputs.shape == (3, 3, 6)
    assert state.inputs.untyped_storage().nbytes() == 3 * 3 * 6 * 8
    _, first = layer.step(torch.randn(3, 2, 6, dtype=torch.float64))
    assert first.inputs.shape == (3, 2, 6)  # no more were read
    with pytest.raises(ValueError, match="causal=True"):
        LightweightConvolution(6, 2).step(torch.randn(1, 1, 6))


def test_the_weights_it_needs_are_few() -> None:
    """Wu et al., section 3: d = 1024, H = 16, k = 7: 112 weights; depthwise 7,168."""
    assert LightweightConvolution(1024, 16).weight.numel() == 112
    depthwise = LightweightOptions(normalize=False)
    assert LightweightConvolution(1024, 1024, options=depthwise).weight.numel() == 7168
    assert lightweight_convolution.CARD.causal == "optional"
