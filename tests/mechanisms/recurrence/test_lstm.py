"""LSTM: PyTorch's own layer, its gates, and what a layer promises."""

import pytest
import torch

from attnlab.measure.count import count
from attnlab.mechanisms.recurrence.lstm import FORMS, LSTM
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence


def pair(form: str) -> tuple[LSTM, torch.nn.LSTM]:
    """A layer, and PyTorch's with its weights; the two biases of a gate are one here."""
    torch.manual_seed(2)
    mine, own = LSTM(7, form=form).double(), torch.nn.LSTM(7, 7, batch_first=True).double()
    with torch.no_grad():
        own.weight_ih_l0.copy_(mine.inputs.flatten(0, 1))
        own.weight_hh_l0.copy_(mine.recurrent.flatten(0, 1))
        mine.biases.copy_((own.bias_ih_l0 + own.bias_hh_l0).view(4, 7))
    return mine, own


@pytest.mark.parametrize("form", FORMS)
def test_pytorchs_layer(form: str) -> None:
    mine, own = pair(form)
    x = sequence(mine)
    torch.testing.assert_close(mine(x), own(x)[0], rtol=0, atol=1e-14)
    _, state = mine.step(x[:, :5])
    _, (hidden, memory) = own(x[:, :5])
    torch.testing.assert_close(state, type(state)(hidden[0], memory[0]), rtol=0, atol=1e-14)
    expected = own(x[:, 5:], (hidden, memory))[0]
    torch.testing.assert_close(mine.step(x[:, 5:], state)[0], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_open_forget_and_closed_input_gates_keep_the_memory(form: str) -> None:
    mine, _ = pair(form)
    x = sequence(mine)
    _, state = mine.step(x)
    with torch.no_grad():
        mine.biases[0], mine.biases[1] = -60, 60
    torch.testing.assert_close(mine.step(x, state)[1].memory, state.memory)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(pair(form)[0])


def test_both_forms_are_counted_alike_forward_and_backward() -> None:
    """In float32 PyTorch's kernel is one operation, which ``count`` has a formula for."""
    for backward, products in ((False, 1), (True, 3)):
        for form in FORMS:
            torch.manual_seed(2)
            layer, x = LSTM(7, form=form), torch.randn(2, 11, 7, requires_grad=True)
            counted = count(layer, x, backward=backward).flops
            # The first state is a constant: the naive form has no product for its gradient.
            assert counted == pytest.approx(products * 2 * 2 * 11 * 8 * 49, rel=0.05), form
