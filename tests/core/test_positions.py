"""Biases by distance, dense and as views, and PyTorch's kernel given them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import attnlab
from attnlab.core import by_distance, patterns
from attnlab.core.positions import BoundedBias, of_pairs, reversed_rows
from attnlab.mechanisms.dense import full, multi_query
from attnlab.mechanisms.positions import alibi


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


LENGTHS = [(10, 10), (4, 10), (1, 10), (10, 4), (1, 1)]
MASKS = [None, patterns.full(), patterns.causal(), patterns.local(2)]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
HEADS = 4


@pytest.fixture(params=[3, 768])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks shorter than the sequences, and longer."""
    monkeypatch.setattr(by_distance, "ROWS", request.param)
    monkeypatch.setattr(by_distance, "BAND", request.param // 2 + 1)


def biases(kind: str, n: int, m: int) -> Tensor:
    """A number for each distance, or for those up to 2 or 20."""
    count = n + m - 1 if kind == "every distance" else 2 * int(kind) + 1
    return torch.randn(HEADS, count, dtype=torch.float64)


def compared(
    made: list[Tensor], kind: str, dtype: torch.dtype, form: Any, exact: Any, **options: Any
) -> None:
    """Outputs and gradients of two forms, the second in float64."""
    results = []
    for each, used in ((form, dtype), (exact, torch.float64)):
        leaves = [x.to(dtype).to(used).requires_grad_() for x in made]
        bias = leaves[3] if kind == "every distance" else BoundedBias(leaves[3])
        out = each(*leaves[:3], bias=bias, **options)
        assert out.dtype == used
        torch.manual_seed(1)
        direction = torch.randn(out.shape, dtype=torch.float64).to(dtype).to(used)
        results.append([out, *torch.autograd.grad((out * direction).sum(), leaves)])
    tolerance = TOLERANCES[dtype]
    for mine, right in zip(*results, strict=True):
        largest = max(1.0, right.detach().abs().max().item())
        torch.testing.assert_close(mine.double(), right, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("kind", ["every distance", "2", "20"])
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(("n", "m"), LENGTHS)
@pytest.mark.parametrize("groups", [HEADS, 2])
def test_the_kernel_with_a_bias_equals_naive(
    n: int, m: int, mask: patterns.Pattern | None, kind: str, groups: int
) -> None:
    torch.manual_seed(0)
    page = full if groups == HEADS else multi_query
    made = [torch.randn(2, h, x, 6).double() for h, x in ((HEADS, n), (groups, m), (groups, m))]
    made.append(biases(kind, n, m))
    compared(made, kind, torch.float64, page.fused, page.naive, mask=mask, scale=0.3)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("kind", ["every distance", "2"])
@pytest.mark.parametrize("mask", [None, patterns.causal()], ids=str)
def test_the_kernel_with_a_bias_in_every_precision(
    mask: patterns.Pattern | None, kind: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    made = [*torch.randn(3, 2, HEADS, 37, 8).double().unbind(0), biases(kind, 37, 37)]
    compared(made, kind, dtype, full.fused, full.naive, mask=mask)


@pytest.mark.parametrize("name", ["alibi", "t5_bias"])
def test_watched_weights_are_those_of_naive(name: str) -> None:
    found = []
    for form in ("naive", "fused"):
        torch.manual_seed(0)
        layer = attnlab.build("full", dim=12, heads=3, positions=name, form=form)
        if name == "t5_bias":
            torch.nn.init.normal_(layer.heads.positions.weight)
        with attnlab.watch(layer) as seen:
            layer(torch.randn(2, 7, 12))
        found.append(seen[0].weights)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("mask", [None, patterns.causal()], ids=str)
def test_long_sequences(mask: patterns.Pattern | None) -> None:
    """Over several blocks of the sizes that are used, and where ALiBi's biases are in thousands."""
    torch.manual_seed(0)
    n = 1601
    made = [*torch.randn(3, 1, HEADS, n, 8).double().unbind(0), biases("128", n, n)]
    compared(made, "128", torch.float32, full.fused, full.naive, mask=mask)
    made[3] = alibi.LinearBiases(HEADS).by_distance(n, n, torch.device("cpu")).double()
    compared(made, "every distance", torch.float32, full.fused, full.naive, mask=mask)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("mask", [None, patterns.causal()], ids=str)
def test_a_bias_that_forbids(mask: patterns.Pattern | None) -> None:
    """A distance of bias -∞ has no weight, though it be all of a block of keys."""
    torch.manual_seed(0)
    made = list(torch.randn(3, 2, HEADS, 11, 6).double().unbind(0))
    table = torch.randn(HEADS, 21).double()
    window = table.masked_fill((torch.arange(-10, 11)).abs() > 1, -torch.inf)
    leaves = [[x.clone().requires_grad_() for x in (*made, window)] for _ in full.FORMS]
    outs = [
        form(*some[:3], bias=some[3], mask=mask)
        for form, some in zip((full.naive, full.fused), leaves, strict=True)
    ]
    torch.testing.assert_close(*outs)
    grads = [torch.autograd.grad(x.sum(), y) for x, y in zip(outs, leaves, strict=True)]
    for mine, right in zip(*grads, strict=True):
        torch.testing.assert_close(mine, right)


def test_values_of_another_width() -> None:
    torch.manual_seed(0)
    made = [torch.randn(2, HEADS, 7, d).double() for d in (6, 6, 5)] + [biases("2", 7, 7)]
    compared(made, "2", torch.float64, full.fused, full.naive)


def test_first_derivatives_only() -> None:
    q = torch.randn(1, HEADS, 5, 4, requires_grad=True)
    out = full.fused(q, q, q, bias=torch.zeros(HEADS, 9))
    with pytest.raises(RuntimeError, match="a bias by distance has first derivatives only"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


class Storage(TorchDispatchMode):
    """The bytes of the largest storage of any result."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else [out]:
            if isinstance(each, Tensor):
                self.largest = max(self.largest, each.untyped_storage().nbytes())
        return out


def test_no_tensor_of_all_pairs() -> None:
    """Neither in the forward pass nor in the backward pass."""
    n = 6144
    made = [x.requires_grad_() for x in torch.randn(3, 1, 1, n, 8).unbind(0)]
    near = torch.zeros(1, 9, requires_grad=True)
    for mask in (None, patterns.causal()):
        with Storage() as counted:
            full.fused(*made, bias=BoundedBias(near), mask=mask).sum().backward()
        assert counted.largest < 4 * n * n / 16


def test_a_bias_of_another_length_is_refused() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind(0)
    for form in full.FORMS.values():
        with pytest.raises(ValueError, match="needs n \\+ m - 1 = 9 distances, got 8"):
            form(q, k, v, bias=torch.zeros(2, 8))


def test_a_bounded_bias() -> None:
    bias = BoundedBias(torch.tensor([[-3.0, 1.0, 0.0, 2.0, 5.0]]))
    assert bias.reach == 2
    assert bias.by_distance(3, 5).tolist() == [[-3, -3, -3, 1, 0, 2, 5]]
    for wrong in (torch.zeros(2, 4), torch.zeros(3)):
        with pytest.raises(ValueError, match="2D \\+ 1 numbers for each head, got the shape"):
            BoundedBias(wrong)
