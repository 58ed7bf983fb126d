"""GSS: the whole layer in plain steps, its kernel, the map, the state."""

import cmath
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.recurrence.gss import FORMS, GSS, GSSOptions
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def layer(form: str = "chunked") -> GSS:
    torch.manual_seed(2)
    options = GSSOptions(state=3, chunk=3, narrow=2)
    return GSS(6, form=form, options=options).double()


@torch.no_grad()
def kernel_by_hand(a: Tensor, b: Tensor, C: Tensor, n: int) -> list[float]:
    """Re Σ_r C_r (e^A - 1) / A e^{A k}: free modes, no factor 2."""
    found = [0.0] * n
    for r in range(len(a)):
        A = complex(-math.exp(a[r]), math.exp(b[r]))
        for k in range(n):
            found[k] += (complex(*C[r].tolist()) * (cmath.exp(A) - 1) / A * cmath.exp(A * k)).real
    return found


@EVERY
def test_the_convolution_in_plain_numbers(form) -> None:
    torch.manual_seed(1)
    x, a, b, C, D = (torch.randn(s).double() for s in ((2, 11, 5), (3,), (3,), (5, 3, 2), (5,)))
    more = {"options": GSSOptions(chunk=4)} if form is FORMS["chunked"] else {}
    out = form(x, a, b, C, D, **more)
    for row, channel in ((0, 0), (1, 4)):
        K = kernel_by_hand(a, b, C[channel], 11)
        u = x[row, :, channel].tolist()
        for i in (0, 1, 10):
            wanted = sum(K[i - j] * u[j] for j in range(i + 1)) + D[channel].item() * u[i]
            assert out[row, i, channel].item() == pytest.approx(wanted, rel=1e-9)


def test_the_layer_in_plain_steps() -> None:
    made = layer("naive")
    x = sequence(made)
    narrow, _, norm = made.heads.value
    U = F.layer_norm(F.gelu(x @ narrow.weight.mT), (3,), norm.weight, norm.bias)
    Y = FORMS["naive"](U, made.a, made.b, made.C, made.skip)
    V = F.gelu(x @ made.gate.weight.mT)
    readout = made.heads.output
    wanted = ((Y @ readout.widen.weight.mT) * V) @ readout.project.weight.mT
    torch.testing.assert_close(made(x), wanted)


def test_with_no_state_it_works_position_by_position() -> None:
    made = layer()
    with torch.no_grad():
        made.C.zero_()
        made.skip.fill_(1)
    x = sequence(made)
    order = torch.randperm(11)
    torch.testing.assert_close(made(x)[:, order], made(x[:, order]))


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_the_toeplitz_matrix_of_the_kernel(form: str) -> None:
    made = layer(form)
    found = mixing_matrix(made, sequence(made))
    assert found.exact
    assert found.matrix.shape == (2, 3, 11, 11)
    for channel in range(3):
        K = kernel_by_hand(made.a, made.b, made.C[channel], 11)
        for i, j in ((0, 0), (10, 2), (4, 4), (3, 8)):
            wanted = (K[i - j] if j <= i else 0) + made.skip[channel].item() * (i == j)
            assert found.matrix[1, channel, i, j].item() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_the_width_is_divided() -> None:
    with pytest.raises(ValueError, match="narrow=4 does not divide dim=6"):
        GSS(6)
    assert GSS(8).heads.value_dim * GSS(8).heads.heads == 2
