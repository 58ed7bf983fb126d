"""Counted costs: on the meta device as on a CPU, at lengths that nobody could compute."""

import pytest
import torch
from torch import nn

from attnlab.measure import costs
from attnlab.measure.costs import Uncountable, counted, state_bytes
from attnlab.measure.count import count
from attnlab.measure.subject import OwnLayer, subject, subjects

DIM, HEADS, N = 12, 2, 200


@pytest.mark.parametrize("one", subjects(dim=DIM, heads=HEADS), ids=lambda one: one.mechanism)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "both"])
def test_counted_is_what_a_cpu_computes(one, backward):
    got = counted(one, N, backward)
    layer, x, told = one.layer(N), one.sequence(N), one.extra_inputs(N)
    with torch.set_grad_enabled(backward):
        layer(x, **told)
        real = count(lambda: layer(x, **told), backward=backward)
    assert got.flops == real.flops
    assert got.largest_elements == real.largest_tensor.elements
    assert got.peak_bytes == pytest.approx(real.peak_bytes, rel=0.3)
    assert got.parameters == sum(p.numel() for p in layer.parameters())


def test_what_would_not_fit_any_memory_is_counted():
    n = 1 << 20
    cost = counted(subject("full", dim=64, heads=1, form="naive"), n)
    assert cost.largest_elements == n * n
    assert cost.mixing_flops == 2 * n * n * (64 + 64)
    assert cost.flops - cost.mixing_flops == 2 * n * 64 * 64 * 4
    fused = counted(subject("full", dim=64, heads=1), n)
    assert fused.largest_elements == n * 64
    assert fused.mixing_flops == cost.mixing_flops


def test_what_is_saved_for_the_backward_pass():
    """Full attention by its equation keeps q, k, v, the weights and the mixed values, no scores."""
    n, dim = 100, 8
    cost = counted(subject("full", dim=dim, heads=1, form="naive"), n)
    fewest = 4 * (4 * n * dim + n * n)
    assert fewest <= cost.saved_bytes <= 2 * fewest
    assert counted(subject("full", dim=dim, heads=1), n).saved_bytes < fewest - 4 * n * n / 2


def test_the_backward_pass_doubles_products_and_linear_maps():
    """A product of matrices has two in its backward pass; the linear maps are taken off in both."""
    naive = subject("full", dim=DIM, heads=HEADS, form="naive")
    forward, both = (counted(naive, 37, backward) for backward in (False, True))
    linear = 4 * 2 * 37 * DIM**2
    assert forward.flops - forward.mixing_flops == linear
    assert both.flops - both.mixing_flops == 3 * linear
    assert both.mixing_flops == pytest.approx(3 * forward.mixing_flops, rel=0.05)


def test_a_layer_of_ones_own_is_counted_like_one_of_the_catalogue():
    def maps(*parts):
        return lambda dim, heads, causal: nn.Sequential(*(part(dim) for part in parts))

    def linear(dim):
        return nn.Linear(dim, dim)

    n, own = 11, OwnLayer("map", maps(linear), dim=DIM)
    cost = counted(own, n)
    assert (cost.flops, cost.mixing_flops) == (2 * n * DIM**2, 0)
    assert cost.parameters == DIM**2 + DIM
    assert cost.intensity == DIM / 4, "n · dim numbers written and as many read, 4 bytes each"
    assert cost.saved_bytes == 0, "the input and the parameters are not what a layer saves"
    assert own.caused().label == "map, causal"
    assert state_bytes(own, n) is None
    twice = OwnLayer("maps", maps(linear, lambda dim: nn.Tanh(), linear), dim=DIM)
    assert counted(twice, n).saved_bytes == 4 * n * DIM, "one storage, which two operations keep"


def test_the_decoding_state_grows_with_the_past_or_does_not():
    full = [state_bytes(subject("full", dim=DIM, heads=HEADS), n) for n in (600, 1200)]
    assert full == [2 * 4 * DIM * n for n in (600, 1200)]
    linear = [state_bytes(subject("linear", dim=DIM, heads=HEADS), n) for n in (640, 1280)]
    assert linear[0] == linear[1] > 0
    window = subject("longformer", dim=DIM, heads=HEADS, window=16)
    assert state_bytes(window, 600) == state_bytes(window, 1200) > 0
    assert state_bytes(subject("bigbird", dim=DIM, heads=HEADS), 600) is None


def test_a_length_that_is_refused_is_a_sentence():
    short = subject("linformer", dim=DIM, heads=HEADS, max_len=300)
    with pytest.raises(Uncountable, match=r"linformer .* at n = 400 cannot be counted: .*300"):
        counted(short, 400)
    with pytest.raises(ValueError, match="n should be at least 1"):
        counted(short, 0)


def test_what_depends_on_numbers_is_computed_and_not_beyond(monkeypatch):
    """Its spans decide which keys are read, so that the meta device cannot know them."""
    one = subject("adaptive_span", dim=DIM, heads=HEADS)
    monkeypatch.setattr(costs, "LONGEST_COMPUTED", 256)
    assert counted(one, 256).flops > 0
    with pytest.raises(Uncountable, match="counted by computing it, up to n = 256"):
        counted(one, 257)
