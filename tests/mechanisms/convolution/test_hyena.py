"""Hyena: the recurrence of gates and filters, its matrix, and decoding."""

import pytest
import torch
from torch import Tensor

from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.convolution.hyena import FORMS, TAPS, Hyena, HyenaOptions


def by_sums(v: Tensor, gates: Tensor, filters: Tensor) -> Tensor:
    """Definition 3.1 for one sequence (n, dim), sum by sum."""
    z, n = v, len(v)
    for x, h in zip(gates, filters, strict=True):
        convolved = torch.zeros_like(v)
        for t in range(n):
            for s in range(t + 1):
                convolved[t] += h[:, t - s] * z[s]
        z = x * convolved
    return z


def drawn(order: int, n: int = 9, dim: int = 4, b: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (b, n, dim), (b, order, n, dim), (order, dim, n)
    v, gates, filters = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return v, gates, filters


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_printed_recurrence(form: str, order: int) -> None:
    v, gates, filters = drawn(order)
    out = FORMS[form](v, gates, filters)
    for row in range(2):
        torch.testing.assert_close(out[row], by_sums(v[row], gates[row], filters))


@pytest.mark.parametrize("form", FORMS)
def test_filters_that_keep_a_token_as_it_is_leave_the_gates(form: str) -> None:
    v, gates, filters = drawn(3)
    filters = torch.zeros_like(filters)
    filters[..., 0] = 1
    torch.testing.assert_close(FORMS[form](v, gates, filters), v * gates.prod(dim=1))


@pytest.mark.parametrize("form", FORMS)
def test_the_released_order_two_is_a_first_filter_that_does_nothing(form: str) -> None:
    """Its first gate comes before the only filter: x² ⊙ (h * (x¹ ⊙ v))."""
    v, gates, filters = drawn(2)
    filters[0] = 0
    filters[0, :, 0] = 1
    inner = FORMS[form](v * gates[:, 0], gates[:, 1:], filters[1:])
    torch.testing.assert_close(FORMS[form](v, gates, filters), inner)


def test_its_matrix_is_the_product_of_toeplitz_and_diagonal_matrices() -> None:
    layer = Hyena(3, options=HyenaOptions(order=2, max_len=16)).double()
    with torch.no_grad():  # the short convolution of the values passes them on
        layer.taps[-3:] = torch.tensor([1.0, 0.0, 0.0])
    x = torch.randn(1, 7, 3, dtype=torch.float64)
    with record() as notes:
        layer(x)
    gates, filters = dict(notes)["gates"][0], dict(notes)["filters"]
    found = mixing_matrix(layer, x)
    assert found.exact
    for channel in range(3):
        M = torch.eye(7, dtype=torch.float64)
        for gate, h in zip(gates, filters, strict=True):
            S = torch.zeros(7, 7, dtype=torch.float64)
            for i in range(7):
                for j in range(i + 1):
                    S[i, j] = h[channel, i - j]
            M = torch.diag(gate[:, channel]) @ S @ M
        torch.testing.assert_close(found.matrix[0, channel], M)
    assert (found.matrix.triu(1).abs() < 1e-12).all()


def test_decoding_keeps_every_input_and_says_so() -> None:
    layer = Hyena(4, options=HyenaOptions(order=3, max_len=40)).double()
    x = torch.randn(2, 30, 4, dtype=torch.float64)
    _, state = layer.step(x)
    assert state.levels.shape == (2, 3, 30, 4)
    assert state.short.shape == (2, TAPS - 1, 16)
    assert "grows" in (Hyena.step.__doc__ or "")
    with pytest.raises(ValueError, match="max_len=40"):
        layer.step(x[:, :11], state)


def test_a_longer_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"41 positions.*max_len=41 or more"):
        Hyena(4, options=HyenaOptions(max_len=40))(torch.randn(1, 41, 4))
    with pytest.raises(ValueError, match="order"):
        HyenaOptions(order=0)


def test_a_filter_does_not_depend_on_how_many_positions_are_asked_for() -> None:
    layer = Hyena(4, options=HyenaOptions(max_len=64)).double()
    torch.testing.assert_close(layer.filter(64)[..., :10], layer.filter(10), rtol=0, atol=1e-12)


def test_windows_let_filters_decay_by_channel() -> None:
    """To 1/100 within 1.5 max_len in the first channel and within 0.3 in the last."""
    layer = Hyena(5, options=HyenaOptions(max_len=1000)).double()
    decay = layer.filter.decay.detach()
    torch.testing.assert_close(torch.exp(-decay[0] * 1.5), torch.tensor(0.01).double())
    torch.testing.assert_close(torch.exp(-decay[-1] * 0.3), torch.tensor(0.01).double())
    with torch.no_grad():
        layer.filter.floor.zero_()
        layer.filter.own.zero_()
        sizes = layer.filter(1000).abs()
        near, far = sizes[..., :200].amax(-1), sizes[..., -200:].amax(-1)
    assert (far[:, -1] < 1e-4 * near[:, -1]).all()
    assert (far[:, 0] > 1e-2 * near[:, 0]).all()
