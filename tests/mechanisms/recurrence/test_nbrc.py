"""nBRC: in plain numbers, as a GRU of PyTorch, fixed points, and what a layer promises."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.mechanisms.recurrence import bistable
from attnlab.mechanisms.recurrence.bistable import NBRC
from attnlab.mechanisms.recurrence.bistable import NBRC_FORMS as FORMS
from tests.mechanisms.recurrence.recurrences import PROMISES

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(dim: int = 5) -> list[Tensor]:
    torch.manual_seed(1)
    shapes = (2, 13, dim), (3, dim, dim), (2, dim, dim), (2, dim)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [sum(w * y for w, y in zip(row, vector, strict=True)) for row in matrix.tolist()]


@EVERY
def test_the_cell_in_plain_numbers(form) -> None:
    x, (u_a, u_c, u), (w_a, w_c), (b_a, b_c) = given = drawn()
    out = form(*given)
    for row in range(2):
        h = [0.0] * 5
        for t in range(13):
            now = x[row, t].tolist()
            from_a = zip(times(u_a, now), times(w_a, h), b_a.tolist(), strict=True)
            from_c = zip(times(u_c, now), times(w_c, h), b_c.tolist(), strict=True)
            a = [1 + math.tanh(sum(each)) for each in from_a]
            c = [1 / (1 + math.exp(-sum(each))) for each in from_c]
            drive = times(u, now)
            h = [c[i] * h[i] + (1 - c[i]) * math.tanh(drive[i] + a[i] * h[i]) for i in range(5)]
            assert out[row, t].tolist() == pytest.approx(h, abs=1e-12)


@EVERY
def test_it_is_a_gru_with_twice_the_identity(form) -> None:
    """1 + tanh v = 2 σ(2v): the module of PyTorch, its weights set one by one."""
    x, (u_a, u_c, u), (w_a, w_c), (b_a, b_c) = given = drawn()
    gru = torch.nn.GRU(5, 5, batch_first=True).double()
    with torch.no_grad():
        for gate, (of_x, of_h, bias) in enumerate(
            ((2 * u_a, 2 * w_a, 2 * b_a), (u_c, w_c, b_c), (u, 2 * torch.eye(5), 0 * b_a))
        ):
            rows = slice(5 * gate, 5 * gate + 5)
            gru.weight_ih_l0[rows], gru.weight_hh_l0[rows] = of_x, of_h
            gru.bias_ih_l0[rows], gru.bias_hh_l0[rows] = bias, 0
    torch.testing.assert_close(form(*given), gru(x)[0], rtol=0, atol=1e-14)


@EVERY
def test_with_diagonal_matrices_it_is_brc(form) -> None:
    x, inputs, recurrent, biases = drawn()
    of_units = recurrent.diagonal(dim1=1, dim2=2)
    expected = bistable.naive(x, inputs, of_units, biases)
    torch.testing.assert_close(form(x, inputs, of_units.diag_embed(), biases), expected)


@EVERY
def test_the_state_stays_between_minus_one_and_one(form) -> None:
    x, inputs, recurrent, biases = drawn()
    assert form(x * 1e3, inputs, recurrent * 1e3, biases).abs().max() <= 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    torch.manual_seed(2)
    promise(NBRC(7, form=form).double())


def test_parameters_and_where_they_start() -> None:
    """3mn + 2n² + 2n of them for m inputs and n units."""
    made = NBRC(7).double()
    assert sum(p.numel() for p in made.parameters()) == 3 * 49 + 2 * 49 + 14
    torch.testing.assert_close(made.recurrent @ made.recurrent.mT, torch.eye(7).expand(2, 7, 7),
                               check_dtype=False)  # fmt: skip
    assert NBRC(100).inputs.std().item() == pytest.approx((2 / 200) ** 0.5, rel=0.02)
