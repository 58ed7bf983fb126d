"""CoPE: counted positions by hand, its limits, and that nothing behind a mask is counted."""

import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.positions import shaw
from attnlab.mechanisms.positions.cope import FORMS, CoPEAttention, CoPEOptions

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
P = 5


def made(n: int = 5, m: int = 7, rows: int = P) -> tuple[Tensor, ...]:
    shapes = ((2, 3, n, 11), (2, 3, m, 11), (2, 3, m, 13), (rows, 11))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@each_form
def test_each_pair_in_plain_numbers(form) -> None:
    q, k, v, table = made()
    out, (n, d), m = form(q, k, v, table), q.shape[2:], k.shape[2]
    for i in range(n):
        row, last = q[1, 2, i], m - n + i
        scores = [float(row @ k[1, 2, j]) / math.sqrt(d) for j in range(last + 1)]
        gates = [1 / (1 + math.exp(-score)) for score in scores]
        powers = []
        for j in range(last + 1):
            at = min(sum(gates[j:]), P - 1)
            low, high = math.floor(at), math.ceil(at)
            vector = table[low] + (at - low) * (table[high] - table[low])
            powers.append(math.exp(scores[j] + float(row @ vector)))
        expected = sum(power * v[1, 2, j] for j, power in enumerate(powers)) / sum(powers)
        torch.testing.assert_close(out[1, 2, i], expected)


@each_form
def test_a_table_of_zeros_is_causal_attention(form) -> None:
    q, k, v, table = made()
    torch.testing.assert_close(
        form(q, k, v, table * 0), full.naive(q, k, v, mask=patterns.causal())
    )


@each_form
def test_open_gates_count_tokens(form) -> None:
    """Scores so large that all gates are 1, yet equal: the distance i − j + 1, as Shaw's rows."""
    q, k, v, table = made(n=7, rows=30)
    q[..., 0], k[..., 0] = 40 * math.sqrt(11), 1.0
    q[..., 1:], k[..., 1:] = q[..., 1:] * 1e-3, 0
    # Shaw's row c is for j − i = c − 6, and its products are divided by √d.
    shifted = torch.stack([table[max(0, 7 - c)] for c in range(13)]) * math.sqrt(11)
    expected = shaw.naive(q, k, v, shifted, None, causal=True)
    torch.testing.assert_close(form(q, k, v, table), expected)


@each_form
def test_closed_gates_leave_nothing_but_the_first_row_which_cancels(form) -> None:
    q, k, v, table = made(n=7)
    q[..., 0], k[..., 0] = -60 * math.sqrt(11), 1.0
    other = table.clone()
    other[0] += torch.randn(11)
    expected = full.naive(q, k, v, mask=patterns.causal())
    torch.testing.assert_close(form(q, k, v, table), expected)
    torch.testing.assert_close(form(q, k, v, other), expected)


@each_form
def test_far_positions_share_the_last_row(form) -> None:
    """One row is the same number for all keys of a query; no position is beyond the last row."""
    q, k, v, table = made(rows=1)
    expected = full.naive(q, k, v, mask=patterns.causal())
    torch.testing.assert_close(form(q, k, v, table), expected)
    with record() as notes:
        form(*made())
    assert notes.last("positions").max() <= P - 1


@each_form
def test_what_is_masked_is_not_counted(form) -> None:
    """Keys that a mask hides, before or after, have no gate: as if they were not there."""
    q, k, v, table = made(n=7)
    kept = torch.tensor([True, True, False, True, False, True, True])
    hidden = form(q, k, v, table, mask=kept.expand(7, 7))[:, :, kept]
    alone = form(q[:, :, kept], k[:, :, kept], v[:, :, kept], table)
    torch.testing.assert_close(hidden, alone)
    with record() as notes:
        form(q, k, v, table)
    assert not notes.last("gates").triu(1).any()


@each_form
def test_gates_have_a_gradient_through_positions(form) -> None:
    """Keys that differ along the table alone: without interpolation nothing would reach them."""
    q, k, v, table = (x.requires_grad_() for x in made())
    form(q, k, v, table).square().sum().backward()
    assert all(x.grad is not None and x.grad.abs().sum() > 0 for x in (q, k, v, table))


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="cope is always causal"):
        attnlab.build("cope", dim=12, heads=3)
    with pytest.raises(ValueError, match="cope cannot take rotated queries and keys: it counts"):
        attnlab.build("cope", dim=12, heads=3, causal=True, positions="rope")
    layer = CoPEAttention(12, 3, options=CoPEOptions(rows=7))
    assert layer.table.shape == (7, 4)
    assert not layer.table.any()
