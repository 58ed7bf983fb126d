"""H3: its sum in plain numbers, linear attention as a special case, the map, the state."""

import cmath
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.recurrence import h3
from attnlab.mechanisms.recurrence.h3 import FORMS, H3, H3Options, chunks
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(n: int = 11, heads: int = 3, d: int = 2, taps: int = 4, r: int = 3) -> list[Tensor]:
    """q, k, v, taps, frequency, log decay, log step, C B and D."""
    torch.manual_seed(1)
    shapes = (*[(2, heads, n, d)] * 2, (2, heads, n, 5), (heads, d, taps), *[(heads, r)] * 2)
    return [torch.randn(s).double() for s in (*shapes, (heads,), (heads, r, 2), (heads,))]


def layer(form: str = "chunked") -> H3:
    torch.manual_seed(2)
    return H3(6, 3, form=form, options=H3Options(state=6, shift=4, chunk=3)).double()


@EVERY
def test_the_sum_in_plain_numbers(form) -> None:
    q, k, v, taps, *rest = drawn()
    frequency, log_decay, log_step, weight, skip = space = h3.StateSpace(*rest)
    more = {"options": H3Options(chunk=3)} if form is h3.chunked else {}
    out = form(q, k, v, taps, space, **more)
    for b, h, i, e in ((0, 0, 0, 1), (1, 2, 10, 4), (0, 1, 5, 0)):
        step, wanted = math.exp(log_step[h]), 0.0
        for j in range(i + 1):
            key = [
                sum(taps[h, d, t].item() * k[b, h, j - t, d].item() for t in range(min(j + 1, 4)))
                for d in range(2)
            ]
            K = skip[h].item() * (i == j)
            for r in range(3):
                A = complex(-math.exp(log_decay[h, r]), frequency[h, r].item())
                drive = (cmath.exp(step * A) - 1) / A * complex(*weight[h, r].tolist())
                K += 2 * (drive * cmath.exp(step * A * (i - j))).real
            product = sum(q[b, h, i, d].item() * key[d] for d in range(2))
            wanted += K * product * v[b, h, j, e].item()
        assert out[b, h, i, e].item() == pytest.approx(wanted, rel=1e-9)


@EVERY
def test_without_shift_and_decay_it_is_linear_attention_without_a_denominator(form) -> None:
    q, k, v, *_ = drawn()
    h = 3
    identity = torch.tensor([1.0, 0, 0, 0]).double().expand(h, 2, 4)
    # One mode that does not decay: e^-800 is 0, and 2 Re C B step = 1.
    zeros, weight = torch.zeros(h, 1).double(), torch.tensor([0.5, 0]).double().expand(h, 1, 2)
    none = torch.zeros(h).double()
    out = form(q, k, v, identity, h3.StateSpace(zeros, zeros - 800, none, weight, none))
    sums = torch.einsum("bhnd,bhne->bhnde", k, v).cumsum(dim=2)
    torch.testing.assert_close(out, torch.einsum("bhnd,bhnde->bhne", q, sums))


@EVERY
def test_a_shift_of_one_recalls_what_followed_a_token(form) -> None:
    """Keys are unit vectors, each stands beside the value after it; the query names one of them."""
    k = torch.eye(5).double()[torch.tensor([[[0, 1, 2, 3, 4, 2]]])]
    v = torch.randn(1, 1, 6, 3).double()
    one = torch.tensor([0.0, 1]).double().expand(1, 5, 2)
    zeros, weight = torch.zeros(1, 1).double(), torch.tensor([[[0.5, 0]]]).double()
    none = torch.zeros(1).double()
    out = form(k, k, v, one, h3.StateSpace(zeros, zeros - 800, none, weight, none))
    torch.testing.assert_close(out[0, 0, 5], v[0, 0, 3])  # the token 2 came before, and then 3


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _ = made.heads.project(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    wanted = h3.naive(q, k, eye, made.taps, made._space())
    torch.testing.assert_close(found.matrix, wanted)
    assert found.matrix.triu(1).abs().max() < 1e-12


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_an_odd_state_is_refused() -> None:
    with pytest.raises(ValueError, match="state should be even, got 3"):
        H3Options(state=3)


@pytest.mark.parametrize("n", [1, 5, 23, 40])
def test_chunks_together_are_chunks_one_by_one(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU computes all whole chunks in one call: the same values, state and gradients."""
    torch.manual_seed(0)
    layer = attnlab.build("h3", dim=12, heads=2, causal=True, state=4, chunk=5).double()
    x = torch.randn(2, n, 12, dtype=torch.float64, requires_grad=True)
    found = []
    for on_cpu in (True, False):
        monkeypatch.setattr(chunks, "on_cpu", lambda x, on_cpu=on_cpu: on_cpu)
        with record() as notes:
            out = layer(x)
        leaves = [x, *layer.parameters()]
        grads = torch.autograd.grad(out.square().sum(), leaves, materialize_grads=True)
        found.append([out, notes.last("state"), *grads])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
