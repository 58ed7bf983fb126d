"""Retention: three forms and the complex one, the gate and the norm, the map, the state."""

import cmath
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.recurrence import retention
from attnlab.mechanisms.recurrence.retention import FORMS, Retention, RetentionOptions, turned
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 3, n, width).double() for width in (d, d, 5)]


def layer(form: str = "chunked", **more) -> Retention:
    torch.manual_seed(2)
    return Retention(12, 3, form=form, options=RetentionOptions(chunk=3), **more).double()


@EVERY
def test_the_sum_in_plain_numbers(form) -> None:
    q, k, v = drawn()
    options = {"options": RetentionOptions(chunk=4)} if form is retention.chunked else {}
    out = form(q, k, v, **options)
    for b, h, i, e in ((0, 0, 0, 1), (1, 2, 12, 4), (0, 1, 6, 0)):
        gamma, wanted = 1 - 2 ** (-5 - h), 0.0
        for j in range(i + 1):
            product = sum(q[b, h, i, d].item() * k[b, h, j, d].item() for d in range(4))
            wanted += gamma ** (i - j) * product * v[b, h, j, e].item()
        assert out[b, h, i, e].item() == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_sums_beyond_the_numbers_of_float16(form: str) -> None:
    """The norm brings them back; no row sums are needed, which the paper divides by."""
    half, x = layer(form).half(), sequence(layer()).half() * 300
    exact = half.double()(x.double())
    out = half.half()(x)
    assert exact.abs().max() < 1e4
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=2e-3 * exact.abs().max().item())


@pytest.mark.parametrize("chunk", [1, 2, 5, 13, 64])
@pytest.mark.parametrize("n", [1, 2, 13])
def test_any_chunk_and_a_ragged_last_one(n: int, chunk: int) -> None:
    """In the outputs, and in the sum that it leaves behind."""
    given = drawn(n)
    with record() as notes:
        found = retention.chunked(*given, options=RetentionOptions(chunk=chunk))
        retention.recurrent(*given)
    torch.testing.assert_close(found, retention.naive(*given))
    torch.testing.assert_close(*notes["state"])


def test_it_is_the_complex_form() -> None:
    """Re Σ_t q_t e^{i n θ_t} conj(k_t e^{i m θ_t}), pairs of coordinates as complex numbers."""
    q, k, _ = drawn()
    places = torch.arange(13)
    scores = turned(q, places) @ turned(k, places).mT
    for b, h, n, m in ((0, 0, 3, 3), (1, 2, 12, 5), (0, 1, 7, 0)):
        wanted = 0j
        for t in range(2):
            theta = 10000 ** -(t / 1)
            left = complex(*q[b, h, n, 2 * t : 2 * t + 2].tolist()) * cmath.exp(1j * n * theta)
            right = complex(*k[b, h, m, 2 * t : 2 * t + 2].tolist()) * cmath.exp(1j * m * theta)
            wanted += left * right.conjugate()
        assert scores[b, h, n, m].item() == pytest.approx(wanted.real, rel=1e-10)


def test_products_depend_on_the_distance() -> None:
    q, k, _ = drawn(n=1)
    near, far = (
        turned(q, torch.tensor([n])) @ turned(k, torch.tensor([n - 4])).mT for n in (5, 905)
    )
    torch.testing.assert_close(near, far, rtol=1e-9, atol=1e-11)


def test_without_decay_it_is_unnormalised_linear_attention(monkeypatch) -> None:
    monkeypatch.setattr(retention, "log_decays", lambda heads, like: like.new_zeros(heads))
    q, k, v = drawn()
    wanted = (q @ k.mT * patterns.causal().dense(13)) @ v
    for form in FORMS.values():
        torch.testing.assert_close(form(q, k, v), wanted)


def test_row_scalings_vanish_in_the_norm() -> None:
    made = layer()
    x, out = torch.randn(2, 7, 12).double(), torch.randn(2, 7, 24).double()
    scale = torch.rand(2, 7, 3, 1).double() + 1
    scaled = (out.unflatten(-1, (3, 8)) * scale).flatten(-2)
    torch.testing.assert_close(made.heads.output(scaled, x), made.heads.output(out, x), rtol=1e-5,
                               atol=1e-5)  # fmt: skip


def test_the_gate_and_the_norm_in_plain_steps() -> None:
    made = layer("naive", value_scale=1)
    x = sequence(made)
    q, k, v = (
        (x @ part.weight.mT).unflatten(-1, (3, 4)).transpose(1, 2)
        for part in (made.heads.query, made.heads.key, made.heads.value)
    )
    places = torch.arange(11)
    out = retention.naive(turned(q, places), turned(k, places) / 2, v).transpose(1, 2)
    normed = out / (out.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    gate = F.silu(x @ made.heads.output.gate.weight.mT)
    wanted = (gate * normed.flatten(2)) @ made.heads.output.project.weight.mT
    torch.testing.assert_close(made(x), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _ = made._projected(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    torch.testing.assert_close(found.matrix, retention.naive(q, k, eye))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_decays_and_widths() -> None:
    gamma = retention.fading(4, 2, torch.zeros(1).double())[:, 1]
    assert gamma.tolist() == pytest.approx([1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128, 1 - 1 / 256])
    assert Retention(12, 3).heads.value_dim == 8
    assert Retention(12, 3, value_scale=1).heads.value_dim == 4
    with pytest.raises(ValueError, match="heads of width 3, but pairs are turned"):
        Retention(12, 4)
    assert math.isclose(gamma[0].item(), 31 / 32)
