"""Experts by modality: split at a position or by a mask."""

import pytest
import torch

import attnlab
from attnlab.core.experts import feed

DIM, HIDDEN, N = 5, 7, 11


def built(split):
    torch.manual_seed(0)
    return attnlab.build("modality_experts", dim=DIM, hidden=HIDDEN, split=split).double()


def of(layer, e, x):
    expand, contract = layer.expand, layer.contract
    return feed(x, expand.weight[e], expand.bias[e], contract.weight[e], contract.bias[e])


def test_each_side_of_the_split_has_its_expert():
    layer, x = built((4,)), torch.randn(2, N, DIM, dtype=torch.float64)
    out = layer(x)
    torch.testing.assert_close(out[:, :4], of(layer, 0, x[:, :4]))
    torch.testing.assert_close(out[:, 4:], of(layer, 1, x[:, 4:]))


@pytest.mark.parametrize(("split", "expert"), [((0,), 1), ((N,), 0)])
def test_a_split_at_an_end_is_one_expert(split, expert):
    layer, x = built(split), torch.randn(2, N, DIM, dtype=torch.float64)
    torch.testing.assert_close(layer(x), of(layer, expert, x))


def test_copies_of_one_expert_are_an_ordinary_layer():
    layer, x = built((3, 8)), torch.randn(2, N, DIM, dtype=torch.float64)
    for p in layer.parameters():
        p.data[:] = p.data[:1].clone()
    torch.testing.assert_close(layer(x), of(layer, 0, x))


def test_a_mask_says_it_token_by_token():
    layer, x = built((4,)), torch.randn(2, N, DIM, dtype=torch.float64)
    modality = torch.randint(2, (2, N))
    out = layer(x, modality=modality)
    for e in (0, 1):
        torch.testing.assert_close(out[modality == e], of(layer, e, x[modality == e]))


def test_what_has_no_expert_is_refused():
    layer, x = built((4,)), torch.randn(2, N, DIM, dtype=torch.float64)
    with pytest.raises(ValueError, match="numbers of experts, 0 to 1, got 0 to 2"):
        layer(x, modality=torch.arange(N).expand(2, N) % 3)
    with pytest.raises(ValueError, match="ascending order"):
        built((5, 2))
    with pytest.raises((TypeError, ValueError), match="split"):
        built((-1,))


def test_a_decoder_that_reads_one_token_at_a_time_does_not_know_the_side():
    tiny = attnlab.TinyTransformer(
        11, dim=8, layers=1, heads=2, feed="modality_experts", feed_options={"split": (3,)}
    )
    assert not tiny.steps_incrementally
