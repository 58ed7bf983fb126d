"""Biases by distance, dense and as views, and PyTorch's kernel given them."""

import pytest
import torch

from attnlab.core import patterns, sdpa
from attnlab.core.positions import of_pairs, reversed_rows
from attnlab.mechanisms.dense import full


@pytest.mark.parametrize(("n", "m"), [(5, 5), (2, 7), (1, 1), (4, 3)])
def test_a_bias_by_distance_as_pairs(n: int, m: int) -> None:
    bias = torch.randn(3, n + m - 1)
    dense = of_pairs(bias, n, m)
    for i in range(n):
        for j in range(m):
            assert torch.equal(dense[:, i, j], bias[:, j - i + n - 1])


def test_reversed_rows_are_a_view() -> None:
    bias = torch.randn(3, 11)
    rows = reversed_rows(bias, 6)
    assert rows.shape == (3, 6, 6)
    assert rows.data_ptr() == bias.data_ptr()
    assert rows.untyped_storage().nbytes() == bias.untyped_storage().nbytes()


@pytest.mark.parametrize("rows", [3, 512])
@pytest.mark.parametrize("mask", [None, patterns.full(), patterns.causal(), patterns.local(2)])
@pytest.mark.parametrize(("n", "m"), [(10, 10), (4, 10), (1, 10), (10, 4)])
def test_the_kernel_with_a_bias_equals_naive(
    n: int, m: int, mask: patterns.Pattern | None, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdpa, "ROWS", rows)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, x, 6, dtype=torch.float64) for x in (n, m, m))
    bias = torch.randn(4, n + m - 1, dtype=torch.float64, requires_grad=True)
    leaves = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), bias]
    outs = [form(q, k, v, mask=mask, bias=bias) for form in (full.fused, full.naive)]
    torch.testing.assert_close(*outs)
    direction = torch.randn_like(outs[0])
    grads = [torch.autograd.grad((out * direction).sum(), leaves) for out in outs]
    for fast, exact in zip(*grads, strict=True):
        torch.testing.assert_close(fast, exact)


def test_a_bias_of_another_length_is_refused() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind(0)
    for form in full.FORMS.values():
        with pytest.raises(ValueError, match="needs n \\+ m - 1 = 9 distances, got 8"):
            form(q, k, v, bias=torch.zeros(2, 8))
