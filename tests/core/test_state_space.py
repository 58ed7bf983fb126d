"""Diagonal state spaces: discretisation, kernel and recurrence, and where poles begin."""

import cmath
import math

import pytest
import torch
from torch import Tensor

from attnlab.core import state_space
from attnlab.core.state_space import (
    advance,
    bilinear,
    discretised,
    hippo,
    initial_state,
    inv,
    kernel,
    legs,
    lin,
    powers,
    real,
    recurrent,
    softmax_hold,
    zero_order_hold,
)


def drawn(dim: int = 3, r: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Stable poles, B̄ / d and C."""
    torch.manual_seed(1)
    A = torch.complex(-torch.rand(dim, r).double(), 3 * torch.randn(dim, r).double())
    step = torch.rand(dim).double() + 0.1
    decay, drive = discretised(A, step)
    return decay, drive, torch.randn(dim, r, dtype=torch.complex128)


# ---- discretisation


@pytest.mark.parametrize("z", [-1e-9, -0.5, -40.0, -0.3 + 2j, 5j, 1e-7j, 0.0])
def test_zero_order_hold_in_plain_numbers(z: complex) -> None:
    decay, weight = zero_order_hold(torch.tensor(z, dtype=torch.complex128))
    assert complex(decay) == pytest.approx(cmath.exp(z), rel=1e-14)
    series = sum(z**k / math.factorial(k + 1) for k in range(20))
    wanted = series if abs(z) < 1 else (cmath.exp(z) - 1) / z
    assert complex(weight) == pytest.approx(wanted, rel=1e-13)


def test_gradients_of_a_hold_at_a_pole_of_zero() -> None:
    z = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    decay, weight = zero_order_hold(z)
    (grad,) = torch.autograd.grad(decay.sum() + weight.sum(), z)
    assert grad.isfinite().all()


@pytest.mark.parametrize("z", [-1e-6 + 0j, -0.5 + 0j, -0.3 + 2j, -40 + 1j])
@pytest.mark.parametrize("n", [1, 2, 13])
def test_the_response_under_softmax_sums_to_one_over_the_pole(z: complex, n: int) -> None:
    decay, weight = softmax_hold(torch.tensor([z], dtype=torch.complex128), n)
    responses = [complex(weight[0] * decay[0] ** k) for k in range(n)]
    assert sum(responses) * z == pytest.approx(1, rel=1e-9)
    for k in range(n - 1):
        assert responses[k + 1] == pytest.approx(cmath.exp(z) * responses[k], rel=1e-12)


def test_two_half_steps_of_an_equal_input_are_one_step() -> None:
    """Exactly by zero-order hold; the trapezoidal rule only tends to it."""
    A, step = torch.tensor([[-0.5 + 3j, -2 + 0.1j]]).to(torch.complex128), torch.ones(1).double()
    for rule, equal in (("zoh", True), ("bilinear", False)):
        decay, drive = discretised(A, step, rule)
        half_decay, half_drive = discretised(A, step / 2, rule)
        twice = half_decay * half_drive + half_drive
        assert torch.allclose(half_decay**2, decay) is equal
        assert torch.allclose(twice, drive) is equal


def test_a_mode_keeps_its_size_only_on_the_imaginary_axis() -> None:
    step = torch.tensor([0.7]).double()
    for rule in state_space.RULES:
        on, off = torch.tensor([[3j]]), torch.tensor([[-0.1 + 3j]])
        assert abs(discretised(on, step, rule)[0]).item() == pytest.approx(1, rel=1e-6)
        assert abs(discretised(off, step, rule)[0]).item() < 0.99
    far = torch.tensor([-1e8 + 0j])
    torch.testing.assert_close(bilinear(far)[0], torch.tensor([-1 + 0j]))
    torch.testing.assert_close(zero_order_hold(far)[0], torch.tensor([0j]))


def test_what_is_not_stable_or_finite_is_refused() -> None:
    A, step = torch.tensor([[-0.5 + 3j]]), torch.ones(1)
    with pytest.raises(ValueError, match=r"real part 0\.2: its response grows without bound"):
        discretised(A + 0.7, step)
    with pytest.raises(ValueError, match="a pole is NaN or infinite"):
        discretised(A * math.nan, step)
    for bad in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="step should be positive and finite"):
            discretised(A, step * bad)
    with pytest.raises(ValueError, match="the discretisation overflows"):
        discretised(A * 1e30, step * 1e30)
    with pytest.raises(TypeError, match=r"should be a complex tensor, got torch\.float32"):
        discretised(A.real, step)
    with pytest.raises(TypeError, match="step should be a tensor of real numbers, got float"):
        discretised(A, 0.1)
    with pytest.raises(TypeError, match=r"real numbers, got torch\.complex64"):
        discretised(A, step * 1j)
    with pytest.raises(ValueError, match="no rule 'zho'; did you mean 'zoh'"):
        discretised(A, step, "zho")


# ---- kernel and recurrence


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 64, 97])
def test_powers_and_the_kernel_in_plain_numbers(n: int) -> None:
    decay, drive, C = drawn()
    assert powers(decay, n).shape == (3, 5, n)
    found = kernel(decay, C * drive, n)
    assert found.shape == (3, n)
    for channel, k in ((0, 0), (2, n - 1), (1, n // 2)):
        wanted = sum(
            2 * (complex(w) * complex(z) ** k).real
            for w, z in zip((C * drive)[channel], decay[channel], strict=True)
        )
        assert found[channel, k].item() == pytest.approx(wanted, rel=1e-10, abs=1e-12)


def test_a_long_kernel_keeps_its_digits() -> None:
    """In single precision 65,536 equal roundings of a decay would add up. The exact one is a sum of
    exponentials, without a power."""
    poles, n = lin(32), 1 << 16
    decay, drive = discretised(poles[None], torch.tensor([2e-5]).double())
    ages = 2e-5 * torch.arange(n).double()
    exact = 2 * (drive[0, :, None] * (poles[:, None] * ages).exp()).sum(dim=0).real
    found = kernel(decay, drive.to(torch.complex64), n)[0]
    assert (found - exact).abs().max() < 1e-6 * exact.abs().max()


def test_kept_modes_twice_are_all_modes_with_their_conjugates() -> None:
    decay, drive, C = drawn()
    both = [torch.cat((x, x.conj()), dim=1) for x in (decay, C * drive)]
    whole = (both[1][..., None] * powers(both[0], 11)).sum(dim=1)
    torch.testing.assert_close(whole.real, kernel(decay, C * drive, 11))
    assert whole.imag.abs().max() < 1e-12


@pytest.mark.parametrize("chunk", [1, 3, 5, 64])
@pytest.mark.parametrize("cut", [[13], [1] * 13, [4, 1, 8]])
def test_the_recurrence_is_the_convolution_wherever_it_is_cut(chunk: int, cut: list[int]) -> None:
    decay, drive, C = drawn()
    x = torch.randn(2, 13, 3).double()
    wanted = state_space.convolved(x, decay, drive, C)
    stepped, last = recurrent(x, initial_state(x, 5), decay, drive, C)
    torch.testing.assert_close(stepped, wanted)
    state, parts = initial_state(x, 5), []
    for piece in x.split(cut, dim=1):
        out, state = advance(piece, state, decay, drive, C, chunk=chunk)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), wanted)
    torch.testing.assert_close(state, last)


def test_the_kernel_begins_with_the_newest_token() -> None:
    decay, drive, C = drawn()
    first = 2 * (C * drive).sum(dim=1).real
    torch.testing.assert_close(kernel(decay, C * drive, 7)[:, 0], first)
    x = torch.randn(2, 1, 3).double()
    torch.testing.assert_close(
        advance(x, initial_state(x, 5), decay, drive, C, chunk=4)[0], first * x
    )


# ---- where poles begin


def test_poles_of_lin_and_inv() -> None:
    assert lin(3).tolist() == pytest.approx([-0.5, -0.5 + math.pi * 1j, -0.5 + 2j * math.pi])
    wanted = [-0.5 + 1j * (4 / math.pi) * (4 / (2 * k + 1) - 1) for k in range(2)]
    assert inv(2).tolist() == pytest.approx(wanted)


def test_poles_of_real_are_the_eigenvalues_of_hippo() -> None:
    assert real(3).tolist() == [-1, -2, -3]
    found = torch.linalg.eigvals(hippo(3)[0])
    torch.testing.assert_close(found[found.real.argsort(descending=True)], real(3))


def test_legs_is_the_normal_part_of_hippo() -> None:
    A, B = hippo(8)
    P = torch.tensor([math.sqrt(i + 0.5) for i in range(8)], dtype=torch.float64)
    for i in range(8):
        for j in range(8):
            wanted = -math.sqrt((2 * i + 1) * (2 * j + 1)) if i > j else -(i + 1) * (i == j)
            assert A[i, j].item() == pytest.approx(wanted)
    normal = A + P[:, None] * P
    torch.testing.assert_close(normal + normal.mT, -torch.eye(8).double())
    poles, weights, V = legs(4)
    assert (poles.real == -0.5).all()
    assert (poles.imag > 0).all()
    torch.testing.assert_close(normal.to(V.dtype) @ V, V * poles)
    torch.testing.assert_close(V.mH @ V, torch.eye(4).to(V.dtype))
    torch.testing.assert_close(weights, V.mH @ B.to(V.dtype) / 2)
    # The largest frequency grows with N² / π.
    assert legs(64)[0].imag.max().item() == pytest.approx(128**2 / math.pi, rel=0.05)


@pytest.mark.parametrize("modes", [2, 5, 8, 32])
def test_eigenvectors_have_the_same_sign_on_every_processor(modes: int) -> None:
    _, weights, V = legs(modes)
    assert (V[0].real > 0).all()
    assert (weights.real > 0).all()


def test_half_of_the_modes_is_the_dense_normal_system() -> None:
    """e^{tA} B of the dense system, against twice the real part of the kept modes."""
    A, B = hippo(8)
    P = B / math.sqrt(2)
    poles, weights, V = legs(4)
    for t in (0.1, 1.3):
        dense = torch.linalg.matrix_exp(t * (A + P[:, None] * P)) @ B / 2
        found = 2 * (V @ ((t * poles).exp() * weights)).real
        torch.testing.assert_close(found, dense)


def test_the_responses_of_hippo_are_legendre_polynomials_in_the_age() -> None:
    A, B = hippo(4)
    for t in (0.2, 1.1):
        found, z = torch.linalg.matrix_exp(t * A) @ B, 2 * math.exp(-t) - 1
        legendre = [1, z, (3 * z**2 - 1) / 2, (5 * z**3 - 3 * z) / 2]
        wanted = [math.sqrt(2 * i + 1) * math.exp(-t) * p for i, p in enumerate(legendre)]
        assert found.tolist() == pytest.approx(wanted)


def test_a_layer_made_on_the_meta_device_leaves_the_kept_poles_alone() -> None:
    with torch.device("meta"):
        assert all(x.is_meta for x in state_space.legs(9))
    A, B, V = state_space.legs(9)
    assert not any(x.is_meta for x in (A, B, V))
    assert (A.imag > 0).all()
