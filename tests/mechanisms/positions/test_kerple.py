"""KERPLE: both kernels by hand, ALiBi as a special case, numbers kept above zero."""

import math

import pytest
import torch

import attnlab
from attnlab.mechanisms.positions.kerple import KerpleOptions, naive

AT = torch.arange(6)


def test_by_hand() -> None:
    weight = torch.tensor([[2.0, 0.5], [3.0, 1.5]])
    log, power = (
        naive(AT, AT, weight, options=KerpleOptions(kernel=k)) for k in ("logarithmic", "power")
    )
    assert log[0, 5, 1].item() == pytest.approx(-2 * math.log(1 + 3 * 4))
    assert log[1, 1, 2].item() == pytest.approx(-0.5 * math.log(1 + 1.5))
    assert power[1, 5, 1].item() == pytest.approx(-0.5 * 4**1.5)
    assert power[0, 0, 3].item() == pytest.approx(-2 * 3**2.0)  # r2 = 3 is taken for 2


@pytest.mark.parametrize("heads", [4, 8])
def test_the_power_kernel_starts_as_alibi(heads: int) -> None:
    power = attnlab.build("kerple", dim=8, heads=heads, kernel="power")
    alibi = attnlab.build("alibi", dim=8, heads=heads)
    torch.testing.assert_close(power(AT, AT), alibi(AT, AT))


@pytest.mark.parametrize("kernel", ["logarithmic", "power"])
def test_numbers_below_zero_are_taken_for_the_smallest(kernel: str) -> None:
    options = KerpleOptions(kernel=kernel)
    below, least = torch.full((2, 2), -3.0), torch.full((2, 2), 0.001)
    assert torch.equal(naive(AT, AT, below, options=options), naive(AT, AT, least, options=options))


@pytest.mark.parametrize("kernel", ["logarithmic", "power"])
def test_gradients_are_those_of_finite_differences(kernel: str) -> None:
    """Also at distance 0, where the power has no derivative in its exponent."""
    weight = torch.tensor([[0.7, 1.3], [0.4, 1.6]], dtype=torch.float64, requires_grad=True)
    options = KerpleOptions(kernel=kernel)
    assert torch.autograd.gradcheck(lambda w: naive(AT, AT, w, options=options), weight)


@pytest.mark.parametrize("kernel", ["logarithmic", "power"])
def test_a_number_below_the_smallest_is_led_back(kernel: str) -> None:
    """Also the power's exponent, from above 2: none of them stays where it is for ever."""
    start = torch.tensor([[-0.02], [2.02 if kernel == "power" else -0.02]])
    weight, wanted = start.clone().requires_grad_(), torch.tensor([[0.5], [0.7]])
    options, optimizer = KerpleOptions(kernel=kernel), torch.optim.Adam([weight], 0.02)
    target = naive(AT, AT, wanted, options=options)
    for _ in range(300):
        optimizer.zero_grad()
        (naive(AT, AT, weight, options=options) - target).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(weight.detach(), wanted, atol=0.1, rtol=0)
