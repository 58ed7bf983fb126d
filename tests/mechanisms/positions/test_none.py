"""NoPE: a layer that attends to both sides sees a set, a causal one the number of its tokens."""

import torch

import attnlab


def test_without_positions_permuted_tokens_give_permuted_outputs() -> None:
    torch.manual_seed(0)
    layer, order = attnlab.build("full", dim=8, heads=2), torch.randperm(7)
    none, x = attnlab.build("none", dim=8), torch.randn(1, 7, 8)
    out = layer(none(x, torch.arange(7)))
    torch.testing.assert_close(layer(none(x[:, order], torch.arange(7))), out[:, order])


def test_a_causal_mean_tells_the_position() -> None:
    """Zero queries: equal weights on what is visible, so the first token's share is 1 / (i + 1)."""
    layer = attnlab.build("full", dim=4, heads=1, causal=True)
    with torch.no_grad():
        layer.heads.query.weight.zero_()
        layer.heads.value.weight.copy_(torch.eye(4))
        layer.heads.output.weight.copy_(torch.eye(4))
    x = torch.zeros(1, 6, 4)
    x[0, 0, 0] = 1  # a first token that no other is
    torch.testing.assert_close(layer(x)[0, :, 0], 1 / torch.arange(1.0, 7.0))
