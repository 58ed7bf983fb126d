"""S4D: recurrence and kernel in plain numbers, the map, and the past read from a state."""

import cmath
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import attnlab
from attnlab.core import state_space
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.recurrence import s4d
from attnlab.mechanisms.recurrence.s4d import FORMS, S4D, S4DOptions, reconstruction
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def layer(**options) -> S4D:
    torch.manual_seed(2)
    given = {"state": 6, "chunk": 3, "longest": 0.5} | options
    form = given.pop("form", "chunked")
    return S4D(5, form=form, options=S4DOptions(**given)).double()


@torch.no_grad()
def by_hand(made: S4D, u: list[float], channel: int) -> list[float]:
    """The recurrence of one channel, in plain complex numbers."""
    step = math.exp(made.log_step[channel])
    x, out = [0j] * made.frequency.shape[1], []
    for value in u:
        y = 0.0
        for r in range(len(x)):
            A = complex(-math.exp(made.log_decay[channel, r]), made.frequency[channel, r].item())
            B, C = (complex(*each[channel, r].tolist()) for each in (made.B, made.C))
            if made.options.discretization == "zoh":
                decay = cmath.exp(step * A)
                drive = (decay - 1) / A * B
            elif made.options.discretization == "softmax":
                decay = cmath.exp(step * A)
                drive = B / A / sum(cmath.exp(step * A * k) for k in range(made.options.length))
            else:
                decay = (1 + step * A / 2) / (1 - step * A / 2)
                drive = step * B / (1 - step * A / 2)
            x[r] = decay * x[r] + drive * value
            y += 2 * (C * x[r]).real
        out.append(y + made.skip[channel].item() * value)
    return out


@pytest.mark.parametrize("rule", ["zoh", "bilinear", "softmax"])
@pytest.mark.parametrize("initial", ["legs", "lin", "inv", "real"])
@EVERY
def test_the_recurrence_in_plain_numbers(form, initial: str, rule: str) -> None:
    """The softmax over fewer tokens than there are too: the modes go on after them."""
    length = 7 if rule == "softmax" else None
    made = layer(initial=initial, discretization=rule, length=length)
    x = sequence(made)
    out = form(x, made._learned(), options=made.options)
    for row, channel in ((0, 0), (1, 4)):
        wanted = by_hand(made, x[row, :, channel].tolist(), channel)
        assert out[row, :, channel].tolist() == pytest.approx(wanted, rel=1e-9)


def test_after_the_convolution_come_gelu_and_a_gated_linear_unit() -> None:
    made = layer()
    x = sequence(made)
    y = s4d.naive(x, made._learned(), options=made.options)
    W = made.heads.output
    value, gate = F.linear(F.gelu(y), W.weight, W.bias).chunk(2, dim=-1)
    torch.testing.assert_close(made(x), value * gate.sigmoid())


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_the_toeplitz_matrix_of_the_kernel(form: str) -> None:
    made = layer(form=form)
    found = mixing_matrix(made, sequence(made))
    assert found.exact
    assert found.matrix.shape == (2, 5, 11, 11)
    decay, drive, C = made.system()
    K = state_space.kernel(decay, C * drive, 11)
    for i in range(11):
        for j in range(11):
            wanted = K[:, i - j] + made.skip * (i == j) if j <= i else torch.zeros(5)
            torch.testing.assert_close(
                found.matrix[1, :, i, j], wanted.double().detach(), atol=1e-12, rtol=1e-9
            )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form=form))


def test_the_state_holds_n_numbers_per_channel() -> None:
    made = S4D(8)
    state = made.step(torch.randn(3, 5, 8))[1]
    assert state.modes.numel() == 3 * 8 * 64


# ---- DSS and S4D-Real


def kernel_of(made: S4D, n: int) -> Tensor:
    decay, drive, C = made.system()
    return state_space.kernel(decay, C * drive, n)


def test_the_kernel_of_softmax_is_that_of_dss() -> None:
    """K = Re Σ w / λ softmax_k(Δ λ k) over all N modes of DSS, which have no conjugates."""
    made = layer(discretization="softmax", length=11, initial="lin")
    poles = torch.complex(-made.log_decay.exp(), made.frequency).detach()
    weights = 2 * (torch.view_as_complex(made.B) * torch.view_as_complex(made.C)).detach()
    exponents = (made.log_step.exp()[:, None, None] * poles[..., None] * torch.arange(11)).detach()
    shares = exponents.exp() / exponents.exp().sum(dim=-1, keepdim=True)
    wanted = ((weights / poles)[..., None] * shares).sum(dim=1).real
    torch.testing.assert_close(kernel_of(made, 11), wanted)


def test_a_softmax_over_another_length_is_another_kernel() -> None:
    """Which is why DSS, whose length is that of the sequence, has no recurrence."""
    short, long = (
        kernel_of(layer(discretization="softmax", length=length), 7) for length in (7, 11)
    )
    assert (short - long).abs().max() > 0.1 * short.abs().max()


def test_over_a_long_sequence_the_softmax_is_a_hold_of_the_other_sign() -> None:
    made = layer(discretization="softmax", length=100_000)
    torch.testing.assert_close(kernel_of(made, 13), -kernel_of(layer(), 13))


def test_zero_order_hold_with_b_of_one_is_the_other_kernel_of_dss() -> None:
    """K_k = Re Σ w (e^{λΔ} - 1) / λ e^{λΔk}, DSS_exp."""
    made = layer(initial="lin")
    poles = torch.complex(-made.log_decay.exp(), made.frequency)
    z = made.log_step.exp()[:, None] * poles
    weights = 2 * torch.view_as_complex(made.C) * (z.exp() - 1) / poles
    wanted = [(weights * (z * k).exp()).sum(dim=1).real for k in range(11)]
    torch.testing.assert_close(kernel_of(made, 11), torch.stack(wanted, dim=1).detach())


def test_real_modes_are_exponential_averages() -> None:
    """Poles -1, -2, …, and a response that is a sum of real exponentials of the age."""
    made = layer(initial="real")
    assert (-made.log_decay.exp()).tolist() == [pytest.approx([-1, -2, -3])] * 5
    B, C = (torch.view_as_complex(each) for each in (made.B, made.C))
    step = made.log_step.exp()
    for k in range(7):
        wanted = sum(
            2 * C[:, r].real * B[:, r].real * (1 - (-step * (r + 1)).exp()) / (r + 1)
            * (-step * (r + 1) * k).exp()
            for r in range(3)
        )  # fmt: skip
        torch.testing.assert_close(kernel_of(made, 7)[:, k], wanted.detach())


def test_real_modes_do_not_learn_to_swing() -> None:
    made = layer(initial="real")
    x = sequence(made)
    optimizer = torch.optim.Adam(made.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (made(x) - x.roll(2, dims=1)).square().sum().backward()
        optimizer.step()
    decay = made.system().decay
    assert (decay.imag == 0).all()
    assert (decay.real != layer(initial="real").system().decay.real).all()
    assert "frequency" in made.state_dict()


# ---- reading the past


def smooth(n: int) -> Tensor:
    t = torch.linspace(0, 1, n).double()
    return torch.sin(5 * t) + 0.5 * torch.cos(11 * t)


@pytest.mark.parametrize("initial", ["legs", "lin", "inv"])
def test_a_signal_is_read_from_the_state(initial: str) -> None:
    """64 numbers hold the last two units of time of a smooth signal of 200 tokens."""
    made = S4D(1, options=S4DOptions(initial=initial, shortest=0.01, longest=0.01)).double()
    u = smooth(200)
    parts = made.system()
    state = state_space.recurrent(u[None, :, None], state_space.initial_state(u[None, :, None], 32),
                                  *parts)[1]  # fmt: skip
    found = reconstruction.reconstructed(state, parts.decay, parts.drive, 200)[0, 0]
    assert (found - u)[-100:].abs().mean() < 0.02
    again = state_space.recurrent(
        found[None, :, None], state_space.initial_state(found[None, :, None], 32), *parts
    )[1]
    torch.testing.assert_close(again, state, rtol=1e-4, atol=1e-5)


def test_as_many_tokens_as_the_state_has_numbers_are_read_exactly() -> None:
    made = S4D(2, options=S4DOptions(state=8, shortest=0.2, longest=0.3)).double()
    u = torch.randn(3, 8, 2).double()
    parts = made.system()
    state = state_space.recurrent(u, state_space.initial_state(u, 4), *parts)[1]
    found = reconstruction.reconstructed(state, parts.decay, parts.drive, 8)
    torch.testing.assert_close(found, u.mT, rtol=1e-6, atol=1e-6)


def test_the_state_of_legs_holds_legendre_coefficients() -> None:
    """The polynomials read the signal at any age, as the theory has it for smooth signals."""
    step, n = 0.002, 4000
    made = S4D(1, options=S4DOptions(state=128, shortest=step, longest=step)).double()
    t = torch.arange(n) * step
    u = torch.sin(1.3 * t).double()
    x = u[None, :, None]
    state = state_space.advance(x, state_space.initial_state(x, 64), *made.system(), chunk=64)[1]
    ages = torch.tensor([0.0, 0.1, 0.5, 1.0]).double()
    wanted = torch.sin(1.3 * (t[-1].double() - ages))
    found = reconstruction.legendre_past(state[0, 0], ages)
    assert (found - wanted).abs().max() < 0.02


# ---- bad input


def test_bad_options_and_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="state should be even, got 7"):
        attnlab.build("s4d", dim=4, causal=True, state=7)
    with pytest.raises(ValueError, match=r"0 < shortest <= longest, got 0\.2 and 0\.1"):
        attnlab.build("s4d", dim=4, causal=True, shortest=0.2)
    with pytest.raises(ValueError, match="discretization 'euler'"):
        attnlab.build("s4d", dim=4, causal=True, discretization="euler")
    with pytest.raises(ValueError, match=r"discretization='softmax' needs length=…, the tokens"):
        attnlab.build("s4d", dim=4, causal=True, discretization="softmax")
    with pytest.raises(ValueError, match="length=9 goes with discretization='softmax' only"):
        attnlab.build("s4d", dim=4, causal=True, length=9)
    with pytest.raises(ValueError, match="length should be at least 1, got 0"):
        attnlab.build("s4d", dim=4, causal=True, discretization="softmax", length=0)
    with pytest.raises(ValueError, match="no initial 'reel'; did you mean 'real'"):
        attnlab.build("s4d", dim=4, causal=True, initial="reel")
    with pytest.raises(ValueError, match="the dtype is complex, not a float"):
        layer()(torch.randn(2, 7, 5) * 1j)
