"""Stick-breaking: shares by hand, halves of halves, what is left, masks that take nothing."""

import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.mechanisms.dense.stick_breaking import FORMS, StickBreakingOptions

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
OWN = ("none", "rest", "key")


def made(n: int = 5, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, 3, n, 11), (2, 3, m, 11), (2, 3, m, 13))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@each_form
@pytest.mark.parametrize("own", OWN)
def test_the_stick_in_plain_numbers(form, own: str) -> None:
    q, k, v = made()
    out = form(q, k, v, options=StickBreakingOptions(own=own))
    for i in range(5):
        at, left = 2 + i, 1.0
        expected = torch.zeros(13, dtype=torch.float64)
        for j in range(at if own == "key" else at - 1, -1, -1):
            share = 1 / (1 + math.exp(-float(q[1, 2, i] @ k[1, 2, j]) / math.sqrt(11)))
            expected += left * share * v[1, 2, j]
            left *= 1 - share
        expected += left * v[1, 2, at] * (own == "rest")
        torch.testing.assert_close(out[1, 2, i], expected)


@each_form
def test_equal_scores_are_halves_of_halves_the_newest_first(form) -> None:
    _, k, v = made(7, 7)
    with record() as notes:
        out = form(torch.zeros_like(k), k, v)
    weights = notes.last("weights")[0, 0]
    assert weights[4].tolist() == pytest.approx([1 / 16, 1 / 8, 1 / 4, 1 / 2, 0, 0, 0])
    assert not out[:, :, 0].any()  # the first token has nobody to ask
    assert notes.last("sink")[0, 0, 4].item() == pytest.approx(1 / 16)


@each_form
@pytest.mark.parametrize("own", OWN)
def test_weights_and_what_is_left_are_the_whole_stick(form, own: str) -> None:
    with record() as notes:
        form(*made(), options=StickBreakingOptions(own=own))
    total = notes.last("weights").sum(-1) + notes.last("sink")[..., 0]
    torch.testing.assert_close(total, torch.ones_like(total))
    assert bool(notes.last("sink").any()) == (own != "rest")


@each_form
def test_huge_scores_give_all_to_the_newest_key(form) -> None:
    q, k, v = made(7, 7)
    q, k = torch.full_like(q, 1e3), k.abs() + 1
    torch.testing.assert_close(form(q, k, v)[:, :, 1:], v[:, :, :-1])


@each_form
def test_a_long_stick_keeps_its_gradient(form) -> None:
    """1,000 keys of large shares: finite values and gradients, in float32."""
    q = torch.full((1, 1, 1, 4), 6.0, requires_grad=True)
    k, v = torch.full((1, 1, 1000, 4), 6.0, requires_grad=True), torch.randn(1, 1, 1000, 3)
    form(q, k, v).sum().backward()
    assert all(x.grad is not None and torch.isfinite(x.grad).all() for x in (q, k))


@each_form
@pytest.mark.parametrize("own", OWN)
def test_a_masked_key_takes_nothing(form, own: str) -> None:
    q, k, v = made(7, 7)
    kept = torch.tensor([True, True, False, True, False, True, True])
    options = StickBreakingOptions(own=own)
    hidden = form(q, k, v, mask=kept.expand(7, 7), options=options)[:, :, kept]
    alone = form(q[:, :, kept], k[:, :, kept], v[:, :, kept], options=options)
    torch.testing.assert_close(hidden, alone)
    everything = form(q, k, v, mask=patterns.full(), options=options)
    torch.testing.assert_close(everything, form(q, k, v, options=options))


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="stick_breaking is always causal"):
        attnlab.build("stick_breaking", dim=12, heads=3)
    with pytest.raises(ValueError, match="stick_breaking cannot take biases by distance"):
        attnlab.build("stick_breaking", dim=12, heads=3, causal=True, positions="alibi")
    with pytest.raises(ValueError, match="there is no own 'all'; known: none, rest, key"):
        attnlab.build("stick_breaking", dim=12, heads=3, causal=True, own="all")
