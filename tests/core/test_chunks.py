"""Chunks of a linear recurrence against a loop in plain steps, for every kind of transition."""

import itertools

import pytest
import torch
from torch import Tensor

from attnlab.core import chunks
from attnlab.measure.count import count

DECAYS = (None, 1, 4)  # none, one number per head, one per channel
KINDS = list(itertools.product(DECAYS, (False, True)))


def drawn(n: int, channels: int | None, erase: bool, sizes: tuple[float, ...] = (1e-3, 1.0)):
    """q, k, v, a state, and log decays of several sizes and steps up to 2 where they are wanted."""
    generator = torch.Generator().manual_seed(n)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k, v, S = draw(2, 3, n, 4), draw(2, 3, n, 4), draw(2, 3, n, 5), draw(2, 3, 4, 5)
    given: dict[str, Tensor] = {}
    if channels:
        chosen = torch.randint(len(sizes), (2, 3, n, channels), generator=generator)
        given["log_decay"] = -draw(2, 3, n, channels).abs() * torch.tensor(sizes).double()[chosen]
    if erase:
        given["erase"] = 2 * torch.rand(2, 3, n, 1, generator=generator, dtype=torch.float64)
    return (q, k / k.norm(dim=-1, keepdim=True), v, S), given


def loop(q, k, v, S, log_decay=None, erase=None):
    """The recurrence of the module, each transition as a matrix."""
    out = []
    for t in range(q.shape[2]):
        decay = torch.ones_like(k[:, :, t]) if log_decay is None else log_decay[:, :, t].exp()
        A = torch.diag_embed(decay.expand_as(k[:, :, t]))
        key, value = k[:, :, t, :, None], v[:, :, t, None]
        if erase is not None:
            b = erase[:, :, t, :, None]
            A, value = A - b * key @ (key.mT @ A), b * value
        S = A @ S + key @ value
        out.append(q[:, :, t, None] @ S)
    return torch.cat(out, dim=2), S


@pytest.mark.parametrize(("channels", "erase"), KINDS)
@pytest.mark.parametrize("chunk", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("n", [1, 2, 13, 37])
def test_chunks_of_any_size_are_the_loop(n: int, chunk: int, channels, erase: bool) -> None:
    """Outputs and the state after them, from a state that is not zero, with a ragged last chunk."""
    given, options = drawn(n, channels, erase)
    found = chunks.advance(*given, chunk, **options)
    for mine, theirs in zip(found, loop(*given, **options), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("channels", "erase"), KINDS)
def test_a_state_carried_is_one_run(channels, erase: bool) -> None:
    (q, k, v, S), options = drawn(29, channels, erase)
    whole, last = chunks.advance(q, k, v, S, 4, **options)
    parts = []
    for i, j in ((0, 7), (7, 8), (8, 29)):
        piece = {name: x[:, :, i:j] for name, x in options.items()}
        out, S = chunks.advance(*(x[:, :, i:j] for x in (q, k, v)), S, 4, **piece)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole)
    torch.testing.assert_close(S, last)


@pytest.mark.parametrize("size", [1e20, torch.inf])
@pytest.mark.parametrize("erase", [False, True])
@pytest.mark.parametrize("channels", [1, 4])
def test_decays_to_nothing_are_exact(channels: int, erase: bool, size: float) -> None:
    """A log decay of -10²⁰ or -∞ cuts the past off, and small decays beside it keep their digits;
    gradients are finite."""
    given, options = drawn(37, channels, erase, sizes=(1e-9, 0.25, size))
    leaves = [x.requires_grad_() for x in given]
    wanted, _ = loop(*given, **options)
    for chunk in (5, 37):
        found, _ = chunks.advance(*given, chunk, **options)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        for grad in torch.autograd.grad(found.square().sum(), leaves):
            assert torch.isfinite(grad).all()


def test_many_strong_decays_do_not_overflow() -> None:
    """400 tokens with log a = -2: the factored form would need e^800."""
    (q, k, v, S), _ = drawn(400, None, False)
    log_decay = torch.full_like(k, -2.0)
    found, _ = chunks.advance(q, k, v, S, 400, log_decay=log_decay)
    torch.testing.assert_close(found, loop(q, k, v, S, log_decay)[0])
    assert not torch.isfinite(k * (-log_decay.cumsum(-2)).exp()).all()


def test_sums_of_segments() -> None:
    """Each is added up by itself: a difference of two sums has nothing left of -1/4 after -10²⁰."""
    log_a = torch.tensor([-3.0, -1e20, -0.25, -0.5])
    wanted = [
        [0, -torch.inf, -torch.inf, -torch.inf],
        [-1e20, 0, -torch.inf, -torch.inf],
        [-1e20, -0.25, 0, -torch.inf],
        [-1e20, -0.75, -0.5, 0],
    ]
    assert torch.equal(chunks.segments(log_a), torch.tensor(wanted))
    _, since, until = chunks.decayed(log_a[:, None])
    torch.testing.assert_close(since[:, 0], torch.tensor([-3.0, -1e20, -1e20, -1e20]).exp())
    torch.testing.assert_close(until[:, 0], torch.tensor([-1e20, -0.75, -0.5, 0]).exp())
    total = log_a.cumsum(0)
    assert (total[2] - total[1]).item() == 0


def test_the_decays_of_a_chunk_are_semiseparable() -> None:
    """Blocks below the diagonal have rank 1, L_ik = L_ij L_jk, and the inverse is bidiagonal."""
    log_a = -torch.rand(7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    L = chunks.segments(log_a).exp()
    assert torch.linalg.matrix_rank(L[4:, :4]) == 1
    torch.testing.assert_close(L[6, 1], L[6, 3] * L[3, 1])
    bidiagonal = torch.eye(7).double() - torch.diag(log_a[1:].exp(), -1)
    torch.testing.assert_close(torch.linalg.inv(L), bidiagonal)


def test_a_product_of_transitions_is_the_identity_less_a_product() -> None:
    """∏ (I - b_t k_t k_tᵀ) = I - Kᵀ W."""
    (_, k, v, _), options = drawn(6, None, True)
    b = options["erase"]
    W = chunks.solve(b * k @ k.mT, b * k)
    product = torch.eye(4).double()
    for key, step in zip(k.unbind(2), b.unbind(2), strict=True):
        product = product - step[..., None] * key[..., None] @ (key[..., None, :] @ product)
    torch.testing.assert_close(torch.eye(4).double() - k.mT @ W, product)
    assert v.shape[2] == 6


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("N", [1, 2, 3, 7, 9, 16])
def test_what_is_handed_on(N: int, square: bool) -> None:
    generator = torch.Generator().manual_seed(N)
    kept = torch.randn(2, 3, N, 4, 4 if square else 1, generator=generator).double()
    added = torch.randn(2, 3, N, 4, 5, generator=generator).double()
    state = torch.randn(2, 3, 4, 5, generator=generator).double()
    before, last = chunks.handed_on(kept, added, state)
    for i in range(N):
        torch.testing.assert_close(before[:, :, i], state)
        state = (kept[:, :, i] @ state if square else kept[:, :, i] * state) + added[:, :, i]
    torch.testing.assert_close(last, state)


@pytest.mark.parametrize(("channels", "erase"), KINDS)
def test_launches_grow_like_the_root_of_n(channels, erase: bool) -> None:
    """Calls that are no views, both passes: 16 times the chunks, at most 4 times the steps."""

    def run(n: int) -> int:
        given, options = drawn(n, channels, erase)
        leaves = [x.requires_grad_() for x in given]
        run = lambda *parts: chunks.advance(*parts, 2, **options)[0]  # noqa: E731
        return count(run, *leaves, backward=True).operations

    few, many, most = (run(n) for n in (2 * 4**2, 2 * 8**2, 2 * 16**2))
    assert most - many <= 2.2 * (many - few)
