"""Dynamic convolution: the sum, its neighbours in the literature, and what it depends on."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.core.softmax import masked_softmax
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.convolution import lightweight_convolution
from attnlab.mechanisms.convolution.dynamic_convolution import (
    FORMS,
    DynamicConvolution,
    DynamicOptions,
)


def by_sums(logits: Tensor, v: Tensor, *, causal: bool, renormalize: bool) -> Tensor:
    """Equation 6 with its own indices, which count from 1, for one sequence."""
    h, n, k = logits.shape
    out = torch.zeros_like(v)
    for head in range(h):
        for i in range(1, n + 1):
            shift = k if causal else math.ceil((k + 1) / 2)
            real = {j: i + j - shift for j in range(1, k + 1) if 1 <= i + j - shift <= n}
            powers = {j: math.exp(float(logits[head, i - 1, j - 1])) for j in range(1, k + 1)}
            total = sum(powers[j] for j in (real if renormalize else powers))
            for j, at in real.items():
                out[head, i - 1] += powers[j] / total * v[head, at - 1]
    return out


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("k", [1, 3, 4, 11])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_printed_sum(form: str, k: int, causal: bool, renormalize: bool) -> None:
    logits = torch.randn(2, 3, 8, k, dtype=torch.float64)
    v = torch.randn(2, 3, 8, 2, dtype=torch.float64)
    how = {"causal": causal, "renormalize": renormalize}
    out = FORMS[form](logits, v, **how)
    for row in range(2):
        torch.testing.assert_close(out[row], by_sums(logits[row], v[row], **how))


@pytest.mark.parametrize("form", FORMS)
def test_equal_logits_at_all_positions_are_a_lightweight_convolution(form: str) -> None:
    weight = torch.randn(3, 5, dtype=torch.float64)
    v = torch.randn(2, 3, 9, 2, dtype=torch.float64)
    out = FORMS[form](weight[None, :, None].expand(2, -1, 9, -1), v)
    torch.testing.assert_close(out, lightweight_convolution.naive(weight, v))


@pytest.mark.parametrize("form", FORMS)
def test_zero_logits_are_a_moving_average(form: str) -> None:
    v = torch.randn(1, 1, 12, 3, dtype=torch.float64)
    out = FORMS[form](torch.zeros(1, 1, 12, 4, dtype=torch.float64), v, causal=True)
    torch.testing.assert_close(out[:, :, 3:], v.unfold(2, 4, 1).mean(-1))


@pytest.mark.parametrize("form", FORMS)
def test_renormalized_it_is_local_attention_without_keys(form: str) -> None:
    """A softmax over a window of logits that are bound to the distance."""
    logits = torch.randn(1, 2, 9, 3, dtype=torch.float64)
    v = torch.randn(1, 2, 9, 4, dtype=torch.float64)
    distance = torch.arange(9) - torch.arange(9)[:, None]
    scores = logits.gather(-1, (distance + 1).clamp(0, 2).expand(1, 2, 9, 9))
    weights = masked_softmax(scores, distance.abs() <= 1)
    torch.testing.assert_close(FORMS[form](logits, v, renormalize=True), weights @ v)


def test_renormalized_rows_sum_to_one_over_real_tokens() -> None:
    layer = DynamicConvolution(8, 2, options=DynamicOptions(renormalize=True)).double()
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    padding = torch.arange(11)[None] < 8
    sums = mixing_matrix(layer, x, padding=padding).matrix.sum(-1)
    torch.testing.assert_close(sums[..., :8], torch.ones(1, 2, 8, dtype=torch.float64))


def test_weights_of_a_token_depend_on_that_token_alone() -> None:
    layer = DynamicConvolution(8, 2, causal=True).double()
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    other = x.clone()
    other[:, 5] += 1
    one, two = (mixing_matrix(layer, each) for each in (x, other))
    assert one.exact
    changed = (one.matrix != two.matrix).any(-1)[0].any(0)
    assert changed.nonzero().flatten().tolist() == [5]


def test_weights_are_computed_from_the_gated_input() -> None:
    layer = DynamicConvolution(6, 2, options=DynamicOptions(kernel=3)).double()
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    value, gate = (x @ layer.inputs.weight.T).chunk(2, dim=-1)
    u = value * torch.sigmoid(gate)
    logits = (u @ layer.taps.weight.T).reshape(1, 5, 2, 3).transpose(1, 2)
    out = FORMS["naive"](logits, u.reshape(1, 5, 2, 3).transpose(1, 2))
    expected = out.transpose(1, 2).flatten(2) @ layer.heads.output.weight.T
    torch.testing.assert_close(layer(x), expected)


def test_decoding_starts_like_the_whole_sequence() -> None:
    """With renormalized weights the positions before the first do not exist."""
    options = DynamicOptions(kernel=5, renormalize=True)
    layer = DynamicConvolution(8, 2, causal=True, options=options).double()
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    state, parts = None, []
    for token in x.split(1, dim=1):
        out, state = layer.step(token, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x))
    assert state is not None
    assert state.inputs.shape == (2, 4, 8)


def test_the_weights_it_needs() -> None:
    """Wu et al., section 4: d = 1024, H = 16, k = 7."""
    assert DynamicConvolution(1024, 16).taps.weight.numel() == 114_688
