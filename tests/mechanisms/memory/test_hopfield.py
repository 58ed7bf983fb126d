"""Modern Hopfield networks: the energy, the update rule, and attention as one update."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import attnlab
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.memory.hopfield import (
    Hopfield,
    HopfieldOptions,
    energy,
    fused,
    naive,
    retrieved,
)

BETAS = (0.1, 1.0, 5.0)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def energy_by_sums(state: Tensor, stored: Tensor, beta: float) -> float:
    """Equation 2 for one state (d,) and stored patterns (m, d), in plain sums."""
    products = [sum(float(a * b) for a, b in zip(state, x, strict=True)) for x in stored]
    spread = math.log(sum(math.exp(beta * product) for product in products)) / beta
    longest = max(math.sqrt(sum(float(a) ** 2 for a in x)) for x in stored)
    square = sum(float(a) ** 2 for a in state)
    return -spread + square / 2 + math.log(len(stored)) / beta + longest**2 / 2


def update_by_sums(state: Tensor, stored: Tensor, beta: float) -> Tensor:
    powers = [math.exp(beta * float(x @ state)) for x in stored]
    return sum(
        (p / sum(powers) * x for p, x in zip(powers, stored, strict=True)), torch.zeros_like(state)
    )


@pytest.mark.parametrize("beta", BETAS)
def test_energy_and_update_are_those_of_the_equations(beta: float) -> None:
    states, stored = random(5, 3), random(7, 3, seed=1)
    expected = torch.tensor([energy_by_sums(s, stored, beta) for s in states]).double()
    torch.testing.assert_close(energy(states, stored, beta=beta), expected)
    updated = torch.stack([update_by_sums(s, stored, beta) for s in states])
    torch.testing.assert_close(retrieved(states, stored, beta=beta)[0], updated)


@pytest.mark.parametrize("beta", BETAS)
def test_the_gradient_of_the_energy_is_the_step(beta: float) -> None:
    states, stored = random(2, 5, 3).requires_grad_(), random(2, 7, 3, seed=1)
    (slope,) = torch.autograd.grad(energy(states, stored, beta=beta).sum(), states)
    torch.testing.assert_close(slope, states - retrieved(states, stored, beta=beta)[0])


@pytest.mark.parametrize("beta", BETAS)
def test_the_energy_never_rises_and_is_never_negative(beta: float) -> None:
    states, stored = random(11, 5), random(7, 5, seed=1)
    path = torch.stack([states, *retrieved(states, stored, beta=beta, steps=13)])
    heights = energy(path, stored, beta=beta)
    assert (heights.diff(dim=0) <= 1e-12).all()
    assert (heights >= 0).all()
    assert (heights[0] - heights[-1] > 1e-3).any()


def test_distant_patterns_are_retrieved_by_one_update_and_a_small_beta_gives_the_mean() -> None:
    stored = 3 * torch.eye(7, dtype=torch.float64)
    damaged = stored + 0.3 * random(7, 7)
    once = retrieved(damaged, stored, beta=8.0)[0]
    torch.testing.assert_close(once, stored, atol=1e-6, rtol=0)
    mean = stored.mean(0).expand(7, 7)
    torch.testing.assert_close(retrieved(damaged, stored, beta=1e-9)[0], mean)


@pytest.mark.parametrize("form", [naive, fused])
def test_one_update_at_one_over_root_d_is_attention(form: object) -> None:
    q, k, v = random(2, 3, 5, 7), random(2, 3, 11, 7, seed=1), random(2, 3, 11, 7, seed=2)
    assert callable(form)
    torch.testing.assert_close(form(q, k, v), F.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("form", [naive, fused])
@pytest.mark.parametrize("steps", [2, 4])
def test_more_updates_read_the_values_last(form: object, steps: int) -> None:
    q, k, v = random(1, 1, 5, 7), random(1, 1, 11, 7, seed=1), random(1, 1, 11, 3, seed=2)
    state = retrieved(q, k, beta=0.7, steps=steps - 1)[-1]
    expected = torch.softmax(0.7 * state @ k.mT, -1) @ v
    assert callable(form)
    found = form(q, k, v, options=HopfieldOptions(steps=steps, beta=0.7))
    torch.testing.assert_close(found, expected)


def test_values_are_made_of_the_keys() -> None:
    """Equation 10: V = Y W_K W_V."""
    layer = Hopfield(6, 2).double()
    x = random(2, 5, 6)
    _, k, v = layer.heads.project(x)
    for head in range(2):
        W_V = layer.heads.value.weight[head].T
        torch.testing.assert_close(v[:, head], k[:, head] @ W_V)


@pytest.mark.parametrize("causal", [False, True])
def test_with_values_of_the_tokens_one_update_is_full_attention(causal: bool) -> None:
    layer = Hopfield(12, 3, causal=causal, options=HopfieldOptions(values="tokens")).double()
    full = FullAttention(12, 3, causal=causal).double()
    full.load_state_dict(layer.state_dict())
    x = random(2, 7, 12)
    torch.testing.assert_close(layer(x), full(x))


def test_patterns_may_come_from_a_context() -> None:
    layer = attnlab.build("hopfield", dim=8, heads=2, steps=3)
    assert layer(torch.randn(2, 5, 8), context=torch.randn(2, 3, 8)).shape == (2, 5, 8)
    assert repr(layer).startswith("Hopfield(\n  steps=3, causal=False, form='fused'")


@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_a_beta_that_is_not_positive_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match="beta should be above 0"):
        HopfieldOptions(beta=beta)
    with pytest.raises(ValueError, match="beta should be above 0"):
        energy(random(2, 3), random(5, 3), beta=beta)
    with pytest.raises(ValueError, match="beta should be above 0"):
        retrieved(random(2, 3), random(5, 3), beta=beta)


def test_an_empty_memory_is_refused() -> None:
    for function in (energy, retrieved):
        with pytest.raises(ValueError, match="m is 0, and there is nothing"):
            function(random(2, 3), random(0, 3))
