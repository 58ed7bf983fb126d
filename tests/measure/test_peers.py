"""Adapters of other packages: each gives a layer of our widths, or says what is missing."""

import warnings

import pytest
import torch

import attnlab
from attnlab.measure.peers import PEERS, peer

NAMES = [card.name for card in attnlab.cards() if card.mixes]


@pytest.mark.parametrize("one", PEERS.values(), ids=list(PEERS))
def test_a_peer_is_a_layer_of_our_widths(one):
    assert one.mechanism in NAMES
    if one.missing:
        pytest.skip(one.missing)
    n, dim, heads = 1024, 32, 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, layer = one.make(n, dim, heads)
        x = torch.randn(1, n, dim, requires_grad=True)
        out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    assert out.shape == (1, n, dim)
    out.sum().backward()
    assert x.grad.abs().sum() > 0
    assert list(module.parameters())


def test_an_unknown_peer_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="reformer-pytorch"):
        peer("reformer-pytorh")
