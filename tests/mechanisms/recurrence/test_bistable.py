"""BRC: in plain numbers, units apart from each other, one fixed point or three."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.mechanisms.recurrence.bistable import BRC, FORMS
from tests.mechanisms.recurrence.recurrences import PROMISES

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(dim: int = 5) -> list[Tensor]:
    torch.manual_seed(1)
    shapes = (2, 13, dim), (3, dim, dim), (2, dim), (2, dim)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def run_without_input(
    form, a: float, c: float, start: float, steps: int = 400, moved: float = 0
) -> Tensor:
    """One unit whose gates are constants, from h_0 = ``start``."""
    x = torch.zeros(1, steps, 1, dtype=torch.float64)
    one = torch.zeros(2, 1, dtype=torch.float64)
    biases = torch.tensor([[math.atanh(a - 1)], [math.log(c / (1 - c))]], dtype=torch.float64)
    before = torch.tensor([[start + moved]], dtype=torch.float64)
    return form(x, x.new_zeros(3, 1, 1), one, biases, before=before)[0, :, 0]


@EVERY
def test_the_cell_in_plain_numbers(form) -> None:
    x, (u_a, u_c, u), (w_a, w_c), (b_a, b_c) = given = drawn()
    out = form(*given)
    for row, unit in ((0, 0), (1, 4)):
        h = 0.0
        for t in range(13):
            of_a, of_c, drive = (
                sum(w * y for w, y in zip(m[unit].tolist(), x[row, t].tolist(), strict=True))
                for m in (u_a, u_c, u)
            )
            a = 1 + math.tanh(of_a + w_a[unit].item() * h + b_a[unit].item())
            c = 1 / (1 + math.exp(-(of_c + w_c[unit].item() * h + b_c[unit].item())))
            h = c * h + (1 - c) * math.tanh(drive + a * h)
            assert out[row, t, unit].item() == pytest.approx(h, abs=1e-12)


@EVERY
def test_no_unit_acts_on_another(form) -> None:
    """The Jacobian of a step in the state is diagonal."""
    x, inputs, recurrent, biases = drawn()

    def next_state(h: Tensor) -> Tensor:
        return form(x[:1, :1], inputs, recurrent, biases, before=h[None])[0, 0]

    jacobian = torch.autograd.functional.jacobian(next_state, torch.randn(5).double().tanh())
    assert (jacobian.diagonal() != 0).all()
    assert torch.equal(jacobian, jacobian.diagonal().diag())


@EVERY
@pytest.mark.parametrize("a", [0.3, 0.8, 0.97])
def test_a_weak_feedback_has_one_fixed_point(form, a: float) -> None:
    for start in (-0.9, -0.1, 0.1, 0.9):
        assert run_without_input(form, a, 0.5, start, 3000)[-1].item() == pytest.approx(0, abs=1e-6)


@EVERY
@pytest.mark.parametrize("a", [1.1, 1.5, 1.9])
def test_a_strong_feedback_has_three_fixed_points_and_the_outer_ones_are_stable(
    form, a: float
) -> None:
    high = 1.0
    for _ in range(1000):
        high = math.tanh(a * high)  # the largest solution of h = tanh(a h)
    for start in (0.01, 0.5, 0.99):
        for sign in (1, -1):
            last = run_without_input(form, a, 0.5, sign * start)[-1].item()
            assert last == pytest.approx(sign * high, abs=1e-6)
    assert (run_without_input(form, a, 0.5, 0) == 0).all()


@EVERY
@pytest.mark.parametrize(("a", "c"), [(0.5, 0.2), (1.5, 0.2), (1.5, 0.7)])
def test_the_slope_at_zero(form, a: float, c: float) -> None:
    moved = run_without_input(form, a, c, 0, steps=1, moved=1e-6)[0].item() / 1e-6
    assert moved == pytest.approx(c + (1 - c) * a, rel=1e-5)


@EVERY
def test_a_closed_gate_keeps_the_state_as_it_is(form) -> None:
    x, inputs, recurrent, biases = drawn()
    inputs[1], recurrent[1], biases[1] = 0, 0, 40  # c = 1
    before = torch.randn(2, 5, dtype=torch.float64).tanh()
    out = form(x, inputs, recurrent, biases, before=before)
    torch.testing.assert_close(out, before[:, None].expand_as(out), rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    torch.manual_seed(2)
    promise(BRC(7, form=form).double())


def test_parameters() -> None:
    """3mn + 4n of them for m inputs and n units."""
    assert sum(p.numel() for p in BRC(7).parameters()) == 3 * 49 + 28
