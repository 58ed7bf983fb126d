"""Expert choice: each expert takes the tokens for which its score is highest."""

import pytest
import torch

import attnlab
from attnlab.architecture.feed.expert_choice import grouped, route
from attnlab.core.experts import Experts, feed
from attnlab.core.probe import record

DIM, HIDDEN, E, N = 5, 7, 3, 11


def inputs():
    torch.manual_seed(0)
    sizes = [(2, N, DIM), (E, DIM), (E, HIDDEN, DIM), (E, HIDDEN), (E, DIM, HIDDEN), (E, DIM)]
    x, W_r, *weights = (torch.randn(size, dtype=torch.float64) for size in sizes)
    return x, W_r, Experts(*weights)


def test_every_expert_takes_its_best_tokens():
    x, W_r, weights = inputs()
    out, scores = grouped(x, W_r, weights, capacity=1.2), (x @ W_r.mT).softmax(-1)
    expected = torch.zeros_like(out)
    for b in range(2):
        for e in range(E):
            for i in scores[b, :, e].topk(int(N * 1.2 / E)).indices.tolist():
                expected[b, i] += scores[b, i, e] * feed(x[b, i], *(w[e] for w in weights))
    torch.testing.assert_close(out, expected)


def test_all_experts_have_the_same_load_and_nothing_is_dropped():
    x, W_r, _ = inputs()
    with record() as notes:
        route(x, W_r, 2.0)
    assert notes["load"][0].tolist() == [[7] * E] * 2  # int(11 · 2 / 3)
    assert notes["capacity"][0].tolist() == [7, 7]
    assert not notes["dropped"][0].any()


def test_padding_is_not_taken():
    x, W_r, weights = inputs()
    real = (torch.arange(N) % 4 != 1).expand(2, N)
    out = grouped(x, W_r, weights, capacity=1.2, padding=real)
    short = grouped(x[:, real[0]], W_r, weights, capacity=1.2)
    torch.testing.assert_close(out[:, real[0]], short)
    assert (out[:, ~real[0]] == 0).all()


def test_it_takes_as_many_as_there_are_at_most():
    x, W_r, _ = inputs()
    assert (route(x[:, :1], W_r, 3.0).experts >= 0).all()


def test_decoders_and_capacities_beyond_all_tokens_are_refused():
    with pytest.raises(ValueError, match="'expert_choice' cannot stand in a decoder: whether an"):
        attnlab.TinyTransformer(11, dim=8, layers=1, heads=2, feed="expert_choice")
    attnlab.TinyTransformer(
        11, dim=8, layers=1, heads=2, feed="expert_choice", kind="classifier", classes=2
    )
    with pytest.raises(ValueError, match="capacity should be at most experts=2, got 3"):
        attnlab.build("expert_choice", dim=DIM, experts=2, capacity=3.0)
    with pytest.raises(ValueError, match="capacity should be above 0"):
        attnlab.build("expert_choice", dim=DIM, capacity=0.0)
