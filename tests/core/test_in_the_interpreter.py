"""Kernels in Triton's interpreter: ``test_kernels.py`` starts the process that runs this file.

It has the claims of every mechanism with a form in Triton, of which that process selects those of
this form, and what is claimed of kernels alone.
"""

import importlib
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab import catalog
from attnlab.core import patterns as p
from attnlab.core.kernels import delta_rule, entmax, linear_recurrence, tiles
from attnlab.mechanisms.dense import flash
from attnlab.mechanisms.learned.entmax import EntmaxAttention, definition
from attnlab.mechanisms.recurrence import deltanet
from attnlab.testing import claims

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("tests/core/test_kernels.py runs these in a process", allow_module_level=True)

for _card in catalog.cards():
    if "triton" in _card.kernels:
        globals()[f"Test_{_card.name}"] = claims(_card)

INTERPRETER: Any = importlib.import_module("triton.runtime.interpreter")
BY_NUMBERS = INTERPRETER.ScanOps.generic_scan


def by_rows(scan: Any, given: Any) -> Any:
    """What the interpreter scans along the first axis number by number, each in a call of its own,
    a row at a time."""
    if scan.axis != 0:
        return BY_NUMBERS(scan, given)
    arrays, kinds = [each.handle.data.copy() for each in given], [each.dtype for each in given]
    for row in range(1, len(arrays[0])):
        sides = [
            scan.to_tensor(array[at], kind)
            for at in (row - 1, row)
            for array, kind in zip(arrays, kinds, strict=True)
        ]
        for array, found in zip(arrays, scan.combine_fn.fn(*sides), strict=True):
            array[row] = found.handle.data
    return [scan.to_tensor(array, kind) for array, kind in zip(arrays, kinds, strict=True)]


@pytest.fixture(autouse=True)
def _scans_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(INTERPRETER.ScanOps, "generic_scan", by_rows)


TWICE = "the triton form has first derivatives only"


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def both_near(outs: list[Tensor], given: list[Tensor], bound: float) -> None:
    """Two forms have the same values and gradients, relative to the largest of each."""
    up = torch.randn_like(outs[0])
    found, wanted = ([out, *torch.autograd.grad(out, given, up)] for out in outs)
    for mine, right in zip(found, wanted, strict=True):
        near = bound * right.abs().max().item()
        torch.testing.assert_close(mine, right, rtol=bound, atol=near)


def step_by_step(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    states = []
    for decay, drive in zip(a.unbind(1), b.unbind(1), strict=True):
        h = decay * h + drive
        states.append(h)
    return torch.stack(states, dim=1)


def test_triton_recurrence_over_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, and backward from the last token on; a second derivative is refused."""
    monkeypatch.setattr(linear_recurrence, "TOKENS", 8)  # several tiles of tokens,
    monkeypatch.setattr(linear_recurrence, "CHANNELS", 4)  # and programs of channels
    recurrence = linear_recurrence.recurrence
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        for n in (1, 7, 8, 9, 29):
            given = drawn((2, n, 3, 5), (2, n, 3, 5), (2, 3, 5), dtype=dtype)
            both_near([recurrence(*given), step_by_step(*given)], given, bound)
    x = torch.ones(1, 2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match=TWICE):
        torch.autograd.grad(recurrence(x, x, x[:, 0]).sum(), x, create_graph=True)
    assert recurrence(x[:, :0], x[:, :0], x[:, 0]).shape == (1, 0, 3)


def test_triton_scans_by_rows_as_by_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn((2, 5, 3), (2, 5, 3), (2, 3))
    found = linear_recurrence.recurrence(*given)
    monkeypatch.setattr(INTERPRETER.ScanOps, "generic_scan", BY_NUMBERS)
    assert torch.equal(found, linear_recurrence.recurrence(*given))


def test_triton_attention_over_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns of all kinds, values and gradients; empty tiles are not visited, whole ones have no
    mask."""
    monkeypatch.setattr(tiles, "TILE", 32)  # 16 for these numbers of eight bytes
    valid = torch.arange(41) < torch.tensor([[19], [41]])
    documents = p.document(torch.arange(41) // torch.tensor([[6], [20]]))
    cases: list[tuple[p.Pattern, int, int]] = [  # sequences and heads: as many as tell them apart
        (p.causal(), 1, 2),
        (p.per_head(p.causal(), p.local(2), p.full()), 2, 3),
        (p.causal() & p.dilated(4, 3) & p.padding(valid), 2, 1),
        (documents, 2, 1),
        (p.local(3), 1, 1),
        (p.blocks(11) | p.global_([0]), 1, 1),
        (p.random(3, seed=1) & ~p.local(1), 1, 1),
    ]
    for at, (mask, b, h) in enumerate(cases):
        for n in (41, 18) if at in (0, 2) else (41,):  # fewer queries than keys: whole and padded
            given = drawn((b, h, n, 5), (b, h, 41, 5), (b, h, 41, 7))
            outs = [form(*given, mask=mask) for form in (flash.triton, flash.naive)]
            both_near(outs, given, 1e-10)
    q, k = drawn((2, 3, 41, 5), (2, 3, 41, 5))
    visits = tiles.visits(p.causal(), q, k, 16)
    assert visits.table.tolist() == [[0, -2, -2], [-1, 1, -2], [-1, -1, 2]]
    assert visits.masks.shape == (1, 1, 3, 16, 16)
    with pytest.raises(ValueError, match="at most 256 wide, these are 257; use another form"):
        flash.triton(*(torch.randn(1, 1, 3, 257) for _ in "qkv"))


def test_triton_entmax_of_hard_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a key, with one, with equal ones; gradients as those of the definition."""
    monkeypatch.setattr(
        entmax, "HELD", 128
    )  # several programs, of several rows where these are short
    for m in (1, 3, 37, 130):
        z = torch.randn(2, 5, m, dtype=torch.float64) * 3
        z[0, 0], z[0, 1, 1:], z[1, 2] = -torch.inf, -torch.inf, 7.0  # no key, one key, equal keys
        mine, right = z.clone().requires_grad_(), z.clone().requires_grad_()
        found = entmax.entmax15(mine)
        wanted = definition.by_sorting(definition.shifted(right, None), 1.5)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        up = torch.randn_like(z)
        (one,), (other,) = (
            torch.autograd.grad(found, mine, up),
            torch.autograd.grad(wanted, right, up),
        )
        torch.testing.assert_close(one, other.nan_to_num(0), rtol=1e-9, atol=1e-9)
    alone = "^the form triton has alpha = 1.5 alone, got {}; take implicit$"
    with pytest.raises(ValueError, match=alone.format("1.2")):
        EntmaxAttention(8, 2, form="triton", alpha=1.2)
    with pytest.raises(ValueError, match=alone.format("a learned one")):
        EntmaxAttention(8, 2, form="triton", learn_alpha=True)
    wide = "a row may have 16,384 keys, these have 16,385; use another form"
    with pytest.raises(ValueError, match=wide):
        entmax.entmax15(torch.zeros(1, 2**14 + 1))


def test_triton_delta_rule_over_several_chunks() -> None:
    """Values, the state after the last token, and the gradients of both."""
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        for n, chunk in ((1, 64), (16, 3), (37, 16), (70, 64)):
            options = deltanet.DeltaNetOptions(chunk=chunk, negative=True)
            given = drawn((2, 3, n, 5), (2, 3, n, 5), (2, 3, n, 17), (2, 3, n), dtype=dtype)
            forms = (deltanet.triton, deltanet.naive)
            both_near([form(*given, options=options) for form in forms], given, bound)
    q, k, v, b = (torch.randn(2, 3, 40, size, dtype=torch.float64) for size in (5, 5, 17, 1))
    k = torch.nn.functional.normalize(k, dim=-1).requires_grad_()
    out, S = delta_rule.delta_rule(q, k, v, b.sigmoid(), 16)
    assert out.shape == (2, 3, 40, 17)
    state = torch.zeros(2, 3, 5, 17, dtype=torch.float64)
    for t in range(40):
        at = k[:, :, t, :, None]
        state = state + b.sigmoid()[:, :, t, None] * at @ (v[:, :, t, None] - at.mT @ state)
    pair = [torch.autograd.grad(x.square().sum(), k)[0] for x in (S, state)]
    torch.testing.assert_close(S, state)
    torch.testing.assert_close(*pair)
    total = delta_rule.delta_rule(q, k, v, b, 16)[0].sum()
    with pytest.raises(RuntimeError, match=TWICE):
        torch.autograd.grad(total, k, create_graph=True)
    with pytest.raises(ValueError, match="at most 64 wide, these are 65; use another form"):
        deltanet.triton(
            *(torch.randn(1, 1, 3, width) for width in (65, 65, 4)), torch.randn(1, 1, 3)
        )
