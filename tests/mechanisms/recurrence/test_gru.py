"""GRU: PyTorch's own layer, its cell, and what a layer promises."""

import pytest
import torch

from attnlab.mechanisms.recurrence.gru import FORMS, GRU
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence


def pair(form: str) -> tuple[GRU, torch.nn.GRU]:
    """A layer, and PyTorch's with its weights; the two biases of r and z are one here."""
    torch.manual_seed(2)
    mine, own = GRU(7, form=form).double(), torch.nn.GRU(7, 7, batch_first=True).double()
    with torch.no_grad():
        own.weight_ih_l0.copy_(mine.inputs.flatten(0, 1))
        own.weight_hh_l0.copy_(mine.recurrent.flatten(0, 1))
        both = own.bias_ih_l0 + own.bias_hh_l0
        mine.biases[:2] = both[:14].view(2, 7)
        mine.biases[2], mine.biases[3] = own.bias_ih_l0[14:], own.bias_hh_l0[14:]
    return mine, own


@pytest.mark.parametrize("form", FORMS)
def test_pytorchs_layer(form: str) -> None:
    mine, own = pair(form)
    x = sequence(mine)
    torch.testing.assert_close(mine(x), own(x)[0], rtol=0, atol=1e-14)
    state = mine.step(x[:, :5])[1]
    expected = own(x[:, 5:], own(x[:, :5])[1])[0]
    torch.testing.assert_close(mine.step(x[:, 5:], state)[0], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_an_update_gate_at_one_keeps_the_state_and_at_zero_replaces_it(form: str) -> None:
    mine, _ = pair(form)
    x = sequence(mine)
    with torch.no_grad():
        mine.biases[1] = 60  # z = 1: the state stays what it was, zero
        assert mine(x).abs().max() < 1e-15
        mine.biases[1], mine.biases[0] = -60, -60  # z = 0, r = 0: the candidate without the past
        expected = torch.tanh(x @ mine.inputs[2].mT + mine.biases[2])
        torch.testing.assert_close(mine(x), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(pair(form)[0])


def test_parameters() -> None:
    """3mn + 3n² + 4n of them for m inputs and n units; PyTorch's has 2n more that do nothing."""
    mine, own = (sum(p.numel() for p in each.parameters()) for each in pair("fused"))
    assert mine == 6 * 49 + 28 == own - 2 * 7
