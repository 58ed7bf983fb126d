"""Attention by features: three ways to one result, whatever signs, lengths, chunks and spans."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.precision import no_autocast, upcast_together
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.kernelized.linear import recurrence as linear_recurrence
from attnlab.mechanisms.kernelized.linear.recurrence import (
    Sums,
    advance,
    chunked,
    initial_state,
    read,
    reciprocal,
    summed,
)


def quadratic(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h m r"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The left side of the formula: n × m weights, times the values."""
    with no_autocast(v.device):
        wide_q, wide_k, wide_v = upcast_together(q, k, v)
        scores = wide_q @ wide_k.mT
        if causal:
            scores = scores * patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
        weights = scores * reciprocal(scores.sum(dim=-1, keepdim=True))
        return (weights @ wide_v).to(v.dtype)


def recurrent(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h m r"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The right side as an RNN: add one key and value to the sums, then let one query read them."""
    n, m = q.shape[-2], k.shape[-2]
    lasts = range(m - n, m) if causal else [m - 1] * n  # the last key that each query sees
    with no_autocast(v.device):
        queries, keys, values = (x.split(1, dim=-2) for x in upcast_together(q, k, v))
        state, seen, out = initial_state(keys[0], values[0]), 0, []
        for query, last in zip(queries, lasts, strict=True):
            while seen <= last:
                state, seen = state + summed(keys[seen], values[seen]), seen + 1
            out.append(read(query, state))
        return torch.cat(out, dim=-2).to(v.dtype)


WAYS = (chunked, recurrent)


def made(n: int = 13, m: int = 13, *, signed: bool = False) -> list[Tensor]:
    """φ(q), φ(k), v. Signed features have weights of either sign; their sums stay off zero."""
    shapes = ((2, 3, n, 5), (2, 3, m, 5), (2, 3, m, 11))
    q, k, v = (torch.randn(s, dtype=torch.float64) for s in shapes)
    q, k = (torch.cat((x, x.norm(dim=-1, keepdim=True) * 1.5), dim=-1) for x in (q, k))
    q, k = (q, k) if signed else (q.abs(), k.abs())
    return [x.requires_grad_() for x in (q, k, v)]


def definition(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The formula at the top of the file, term by term."""
    n, m = q.shape[-2], k.shape[-2]
    rows = []
    for i in range(n):
        seen = range(max(0, i + m - n + 1)) if causal else range(m)
        weights = [(q[:, :, i] * k[:, :, j]).sum(-1, keepdim=True) for j in seen]
        mixed = sum((w * v[:, :, j] for w, j in zip(weights, seen, strict=True)), v[:, :, 0] * 0)
        rows.append(mixed / sum(weights) if weights else mixed)
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(7, 7), (5, 11), (11, 5), (1, 7), (1, 1)])
def test_all_ways_are_the_definition(sizes: tuple[int, int], causal: bool, signed: bool) -> None:
    q, k, v = made(*sizes, signed=signed)
    expected = definition(q, k, v, causal)
    grown = torch.autograd.grad(expected.sin().sum(), (q, k, v))
    for way in (quadratic, *WAYS):
        out = way(q, k, v, causal=causal)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
        for mine, theirs in zip(
            torch.autograd.grad(out.sin().sum(), (q, k, v)), grown, strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("span", [1, 200, 2**18])
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 13, 64])
def test_chunks_and_spans_of_any_size(
    chunk: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_recurrence, "SPAN", span)
    q, k, v = made()
    expected = quadratic(q, k, v, causal=True)
    out = chunked(q, k, v, causal=True, chunk=chunk)
    torch.testing.assert_close(out, expected)
    grown = torch.autograd.grad(expected.sin().sum(), (q, k, v))
    for mine, theirs in zip(torch.autograd.grad(out.sin().sum(), (q, k, v)), grown, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_gradients_through_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """By finite differences, of the output and of the sums, also to the sums before."""
    monkeypatch.setattr(linear_recurrence, "SPAN", 100)
    shapes = ((1, 2, 7, 3), (1, 2, 7, 3), (1, 2, 7, 2), (1, 2, 3, 2), (1, 2, 3))
    inputs = [torch.rand(s, dtype=torch.float64, requires_grad=True) for s in shapes]

    def run(q: Tensor, k: Tensor, v: Tensor, values: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
        out, after = advance(q, k, v, Sums(values, keys), chunk=3)
        return out, *after

    assert torch.autograd.gradcheck(run, inputs)


def test_piece_by_piece_is_all_at_once() -> None:
    q, k, v = made()
    parts, state = [], None
    for rows in (slice(0, 5), slice(5, 6), slice(6, 13)):
        out, state = advance(q[:, :, rows], k[:, :, rows], v[:, :, rows], state, chunk=2)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=2), quadratic(q, k, v, causal=True))
    assert state is not None
    torch.testing.assert_close(state.values, k.mT @ v)
    torch.testing.assert_close(state.keys, k.sum(-2))


@pytest.mark.parametrize("causal", [False, True])
def test_the_state_is_noted(causal: bool) -> None:
    q, k, v = made(5, 13)
    with record() as notes:
        chunked(q, k, v, causal=causal)
    (state,) = notes["state"]
    torch.testing.assert_close(state.values, k.mT @ v)
    torch.testing.assert_close(state.keys.squeeze(), k.sum(-2))


def test_no_rounding_tells_of_the_future() -> None:
    """The past is bit for bit what it was, however large the numbers that come."""
    q, k, v = (x.detach().float() for x in made())
    before = chunked(q, k, v, causal=True, chunk=3)
    for t in (1, 3, 7, 12):
        later = v.clone()
        later[:, :, t:] = 1e7 * torch.randn_like(later[:, :, t:])
        out = chunked(q, k, later, causal=True, chunk=3)
        assert torch.equal(out[:, :, :t], before[:, :, :t])
        assert not torch.equal(out[:, :, t:], before[:, :, t:])


@pytest.mark.parametrize("way", [quadratic, *WAYS], ids=lambda way: way.__name__)
@pytest.mark.parametrize("causal", [False, True])
def test_weights_that_cancel_give_zero(way, causal: bool) -> None:
    """Signed features may sum to zero while the values do not; absent ones always do."""
    q = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)[None, None]
    k = torch.tensor([[1.0, 2.0], [-1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)[None, None]
    v = torch.tensor([[3.0], [5.0], [7.0]], dtype=torch.float64)[None, None]
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = way(*leaves, causal=causal)
    assert out.flatten().tolist() == ([3, 0, 0] if causal else [0, 0, 0])
    grown = torch.autograd.grad(out.sum(), leaves)
    assert all(torch.isfinite(g).all() for g in grown)
    assert (grown[0][..., 1:, :] == 0).all()


@pytest.mark.parametrize("way", [quadratic, *WAYS], ids=lambda way: way.__name__)
def test_scales_cancel(way) -> None:
    """One factor per query and one for all keys of a head, large or small: nothing is added."""
    q, k, v = made()
    expected = way(q, k, v, causal=True)
    scaled = way(q * torch.logspace(-30, 30, 13)[:, None].double(), k * 1e-30, v, causal=True)
    torch.testing.assert_close(scaled, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_summed_wide(causal: bool) -> None:
    """Ones in bfloat16 would stop at 256."""
    ones = torch.ones(1, 1, 521, 2, dtype=torch.bfloat16)
    with record() as notes:
        out = chunked(ones, ones, ones * 3, causal=causal)
    assert out.dtype == torch.bfloat16
    assert (out == 3).all()
    assert (notes["state"][0].keys == 521).all()


def test_autocast_rounds_nothing() -> None:
    q, k, v = (x.detach().float().requires_grad_() for x in made(97, 97))
    for causal in (False, True):
        for way in (quadratic, *WAYS):
            expected = way(q, k, v, causal=causal)
            with torch.autocast("cpu", torch.bfloat16):
                out = way(q, k, v, causal=causal)
            assert torch.equal(out, expected)


def test_memory_that_is_allocated_empty_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = made()
    expected = torch.autograd.grad(chunked(q, k, v, causal=True, chunk=3).sin().sum(), (q, k, v))
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, torch.nan))
    monkeypatch.setattr(Tensor, "new_empty", lambda x, *shape: x.new_full(shape, torch.nan))
    got = torch.autograd.grad(chunked(q, k, v, causal=True, chunk=3).sin().sum(), (q, k, v))
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_memory_is_linear_and_no_token_keeps_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward: a state per token would be r = 16 times the values."""
    monkeypatch.setattr(linear_recurrence, "SPAN", 2**13)
    peaks = []
    for n in (2048, 4096):
        q, k, v = (torch.rand(1, 2, n, 16, requires_grad=True) for _ in range(3))
        counted = count(lambda *x: chunked(*x, causal=True, chunk=16), q, k, v, backward=True)
        assert counted.largest_tensor.elements == v.numel()
        assert counted.peak_bytes <= 7 * v.numel() * 4
        peaks.append(counted.peak_bytes)
    assert peaks[1] <= 2 * peaks[0]


def test_what_cannot_be_is_refused() -> None:
    q, k, v = made()
    for causal in (False, True):
        with pytest.raises(ValueError, match="chunk should be at least 1, got 0"):
            chunked(q, k, v, causal=causal, chunk=0)
    _, state = advance(q, k, v)
    with pytest.raises(
        ValueError, match=r"of shape \(2, 3, 6, 11\).*needs float64 of shape \(1, 3, 6, 11\)"
    ):
        advance(q[:1], k[:1], v[:1], state)
    out = chunked(q, k, v, causal=True)
    for reached in (out.square().sum(), out.sum()):
        with pytest.raises(RuntimeError, match="has first derivatives only"):
            torch.autograd.grad(reached, q, create_graph=True, retain_graph=True)
