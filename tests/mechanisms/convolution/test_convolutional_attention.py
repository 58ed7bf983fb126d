"""Attention with temporal convolutions: the sums, and what becomes of the future."""

import pytest
import torch
from torch import Tensor

from attnlab.core.probe import record
from attnlab.mechanisms.convolution.convolutional_attention import (
    FORMS,
    ConvolutionalAttention,
    ConvolutionalOptions,
)
from attnlab.mechanisms.dense import full


def by_sums(x: Tensor, taps: Tensor) -> Tensor:
    """Σ_s x_{i-s} W_s, term by term, for one sequence (n, dim): (h, n, d)."""
    (k, _, h, d), n = taps.shape, len(x)
    out = x.new_zeros(h, n, d)
    for i in range(n):
        for s in range(min(k, i + 1)):
            for head in range(h):
                out[head, i] += x[i - s] @ taps[s, :, head]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("k", [1, 2, 4, 11])
@pytest.mark.parametrize("form", FORMS)
def test_queries_and_keys_are_the_printed_sums(form: str, k: int, causal: bool) -> None:
    x = torch.randn(2, 8, 6, dtype=torch.float64)
    queries, keys = torch.randn(2, k, 6, 3, 2, dtype=torch.float64)
    v = torch.randn(2, 3, 8, 5, dtype=torch.float64)
    out = FORMS[form](x, queries, keys, v, causal=causal)
    mask = torch.ones(8, 8, dtype=torch.bool).tril() if causal else None
    q, k_ = (torch.stack([by_sums(row, taps) for row in x]) for taps in (queries, keys))
    torch.testing.assert_close(out, full.naive(q, k_, v, mask=mask))


@pytest.mark.parametrize("form", FORMS)
def test_with_one_tap_it_is_full_attention(form: str) -> None:
    layer = ConvolutionalAttention(
        12, 3, form=form, options=ConvolutionalOptions(kernel=1)
    ).double()
    peer = full.FullAttention(12, 3).double()
    with torch.no_grad():
        peer.heads.query.weight.copy_(layer.queries[0].flatten(1).T)
        peer.heads.key.weight.copy_(layer.keys[0].flatten(1).T)
        peer.heads.value.weight.copy_(layer.heads.value.weight)
        peer.heads.output.weight.copy_(layer.heads.output.weight)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), peer(x))


def test_scores_compare_shapes() -> None:
    """The difference of two neighbours as query and key finds equal slopes at any height."""
    layer = ConvolutionalAttention(
        2, 1, causal=True, options=ConvolutionalOptions(kernel=2)
    ).double()
    with torch.no_grad():
        for taps in (layer.queries, layer.keys):
            taps.zero_()
            taps[0, 0, 0, 0], taps[1, 0, 0, 0] = 1, -1
    series = torch.tensor([0.0, 1, 0, 5, 4, 8, 9]).double()  # up, down, up, down, up, up
    low, high = (torch.stack((series + add, torch.zeros(7)), -1)[None] for add in (0, 100))
    for each in (low, high):
        scores = _weights(layer, each)[0, 6, 1:7].log()
        steps = series.diff()
        differences = scores - scores[0]
        expected = (steps - steps[0]) * steps[5] / 2**0.5
        torch.testing.assert_close(differences, expected)


def _weights(layer: ConvolutionalAttention, x: Tensor) -> Tensor:
    with record() as notes:
        FORMS["naive"](x, layer.queries, layer.keys, layer.heads.values(x), causal=True)
    return dict(notes)["weights"][:, 0]


def test_decoding_keeps_the_last_tokens() -> None:
    layer = ConvolutionalAttention(
        8, 2, causal=True, options=ConvolutionalOptions(kernel=4)
    ).double()
    _, state = layer.step(torch.randn(3, 20, 8, dtype=torch.float64))
    assert state.keys.shape == (3, 2, 20, 4)
    assert state.inputs.shape == (3, 3, 8)
    with pytest.raises(ValueError, match="causal=True"):
        ConvolutionalAttention(8, 2).step(torch.randn(1, 1, 8))
