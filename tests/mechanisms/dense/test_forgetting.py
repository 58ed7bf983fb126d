"""Forgetting attention: products of gates, its limits, what is kept, and what padding forgets."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.dense.forgetting import FORMS, ForgettingAttention

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = 5, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, 3, n, 11), (2, 3, m, 11), (2, 3, m, 13), (2, 3, m))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@each_form
def test_each_form_is_the_quotient_in_plain_numbers(form) -> None:
    """Products of gates, without a logarithm; the queries are the last n of m positions."""
    q, k, v, gate = made()
    (b, h, n, _), m = q.shape, k.shape[2]
    f = torch.sigmoid(gate).tolist()
    expected = torch.zeros(b, h, n, 13, dtype=torch.float64)
    for s, a, i in itertools.product(range(b), range(h), range(n)):
        at, whole = m - n + i, 0.0
        for j in range(at + 1):
            kept = math.prod(f[s][a][j + 1 : at + 1])
            power = kept * math.exp(float(q[s, a, i] @ k[s, a, j]) / math.sqrt(11))
            expected[s, a, i] += power * v[s, a, j]
            whole += power
        expected[s, a, i] /= whole
    torch.testing.assert_close(form(q, k, v, gate), expected)


@each_form
def test_it_is_the_quotient_of_two_recurrences_of_each_query(form) -> None:
    """S ← f S + e^s v and z ← f z + e^s: gated linear attention with the kernel of softmax."""
    q, k, v, gate = made(n=7)
    powers, f = (q @ k.mT * 11**-0.5).exp(), torch.sigmoid(gate)
    out = torch.zeros(2, 3, 7, 13, dtype=torch.float64)
    for i in range(7):
        state, total = out.new_zeros(2, 3, 13), out.new_zeros(2, 3, 1)
        for j in range(i + 1):
            state = f[..., j, None] * state + powers[..., i, j, None] * v[:, :, j]
            total = f[..., j, None] * total + powers[..., i, j, None]
        out[:, :, i] = state / total
    torch.testing.assert_close(form(q, k, v, gate), out)


@each_form
def test_open_gates_are_causal_attention(form) -> None:
    q, k, v, gate = made()
    expected = full.naive(q, k, v, mask=patterns.causal())
    torch.testing.assert_close(form(q, k, v, torch.full_like(gate, 1e4)), expected)


@each_form
def test_one_gate_for_all_is_alibi(form) -> None:
    """The slope is −log f."""
    q, k, v, _ = made()
    constant = torch.randn(3, dtype=torch.float64)
    slopes = -torch.nn.functional.logsigmoid(constant)
    distances = torch.arange(-6, 5, dtype=torch.float64)  # j − i, from −(m − 1) to n − 1
    bias = slopes[:, None] * distances
    expected = full.naive(q, k, v, mask=patterns.causal(), bias=bias)
    same = constant[:, None].expand(2, 3, 7)
    torch.testing.assert_close(form(q, k, v, same), expected)


@each_form
def test_a_closed_gate_cuts_what_is_before_it(form) -> None:
    q, k, v, gate = made(n=7)
    gate[..., 4] = -1e3
    alone = form(q[:, :, 4:], k[:, :, 4:], v[:, :, 4:], gate[..., 4:])
    torch.testing.assert_close(form(q, k, v, gate)[:, :, 4:], alone)


@each_form
def test_the_first_gate_has_no_effect(form) -> None:
    q, k, v, gate = made(n=7)
    other = gate.clone()
    other[..., 0] = torch.randn(2, 3)
    torch.testing.assert_close(form(q, k, v, gate), form(q, k, v, other))


@each_form
def test_the_future_is_masked_whatever_the_mask_allows(form) -> None:
    q, k, v, gate = made(n=7)
    everything = torch.ones(7, 7, dtype=torch.bool)
    torch.testing.assert_close(form(q, k, v, gate, mask=everything), form(q, k, v, gate))
    torch.testing.assert_close(form(q, k, v, gate, mask=patterns.full()), form(q, k, v, gate))


@each_form
def test_a_long_text_in_half_precision(form) -> None:
    """c of 2,000 tokens that forget nearly nothing: its digits would be lost in bfloat16."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 2000, 8).bfloat16()
    gate = torch.full((1, 1, 2000), 3.0).bfloat16()
    exact = FORMS["naive"](*(x.double() for x in (q, k, v, gate)))
    torch.testing.assert_close(form(q, k, v, gate).double(), exact, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("form", FORMS)
def test_padding_forgets_nothing(form: str) -> None:
    """Padding in the middle, as between two parts of a text, is as if it were not there."""
    layer = ForgettingAttention(12, 3, form=form).double()
    x = torch.randn(1, 9, 12, dtype=torch.float64)
    padding = torch.tensor([[True, True, False, False, True, False, True, True, True]])
    torch.testing.assert_close(layer(x, padding)[padding][None], layer(x[padding][None]))


def test_a_token_is_kept_with_one_number_more() -> None:
    layer = ForgettingAttention(12, 3)
    _, state = layer.step(torch.randn(2, 5, 12))
    assert sum(part.numel() for part in state) == 2 * 5 * 3 * (4 + 4 + 1)


def test_gates_are_noted() -> None:
    layer = ForgettingAttention(12, 3).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    with record() as notes:
        layer(x)
    torch.testing.assert_close(notes.last("gates"), torch.sigmoid(layer.heads.gate(x)).mT)
    assert notes.last("keys").shape == (2, 3, 7, 4)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_watched_makes_the_output(form: str) -> None:
    layer = ForgettingAttention(12, 3, form=form).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    with attnlab.watch(layer) as seen:
        layer(x)
    (one,) = seen
    torch.testing.assert_close(layer.heads.merge(one.weights @ one.values[..., :4]), layer(x))


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="forgetting is always causal"):
        attnlab.build("forgetting", dim=12, heads=3)
    with pytest.raises(ValueError, match="forgetting cannot take biases by distance"):
        attnlab.build("fox", dim=12, heads=3, causal=True, positions="alibi")
    q, k, v, gate = made()
    for form in FORMS.values():
        with pytest.raises(ValueError, match=r"`gate` .* m is 5, expected 7"):
            form(q, k, v, gate[..., :5])


def selective(q: Tensor, k: Tensor, v: Tensor, selected: Tensor) -> Tensor:
    """Causal attention where what earlier tokens have selected against a key is subtracted:
    ``selected`` (b, n, m) ≥ 0, row s of which counts for the rows after it."""
    n = q.shape[2]
    before = torch.cat((torch.zeros_like(selected[:, :1]), selected[:, :-1]), dim=1).cumsum(dim=1)
    scores = q @ k.mT * q.shape[-1] ** -0.5 - before[:, None]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ v


@each_form
def test_selective_attention_with_one_number_a_row_is_a_gate_of_the_next_token(form) -> None:
    q, k, v, _ = made(n=7)
    numbers = torch.rand(2, 7, dtype=torch.float64) + 0.1
    selected = numbers[..., None].expand(2, 7, 7).tril()
    gate = -torch.expm1(numbers).log()  # σ of it is e^(-number)
    gate = torch.cat((torch.zeros_like(gate[:, :1]), gate[:, :-1]), dim=1)
    of_heads = gate[:, None].expand(2, 3, 7)
    torch.testing.assert_close(form(q, k, v, of_heads), selective(q, k, v, selected))
    nothing = selective(q, k, v, torch.zeros_like(selected))
    torch.testing.assert_close(nothing, full.naive(q, k, v, mask=patterns.causal()))
