"""Reformer: its equation pair by pair, its limits (identity R1), its hash, where chunks leak."""

import importlib.util
import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.core.probe import record
from attnlab.lens.watch import watch
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.reformer import (
    FORMS,
    Reformer,
    ReformerOptions,
    attended,
    chunked,
    chunks,
    hash_buckets,
    naive,
    unit,
)

B, H, N, D, E, R = 2, 3, 23, 5, 7, 2
PADDING = torch.rand(B, N, generator=torch.Generator().manual_seed(3)) > 0.3
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
by_causal = pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
SETTINGS = list(product(("nearest", "chunks"), ("attended", "buckets"), (4, 11)))
settings = pytest.mark.parametrize(("window", "count", "chunk"), SETTINGS)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


def made(n: int = N, rounds: int = R, buckets: int = 6) -> list[Tensor]:
    shapes = ((B, H, n, D), (B, H, n, E), (H, rounds, D, buckets // 2))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


# ---- the equation, one pair after the other


def equation(
    q: Tensor, v: Tensor, rotations: Tensor, *,
    causal: bool, padding: Tensor | None, options: ReformerOptions,
) -> Tensor:  # fmt: skip
    """Equations 12 to 16 in loops over queries, rounds and keys."""
    out = torch.zeros_like(v)
    for b, h in product(range(len(q)), range(q.shape[1])):
        real = [t for t in range(q.shape[2]) if padding is None or padding[b, t]]
        hashed = [_hashed(q[b, h], rotation) for rotation in rotations[h]]
        sort = [sorted(real, key=lambda t, of=of: (of[t], t)) for of in hashed]
        for i in real:
            powers = {}
            for r, j in product(range(len(hashed)), real):
                if (
                    j == i
                    or (causal and j > i)
                    or not _near(i, j, r, hashed, sort, causal, options)
                ):
                    continue
                rounds = range(len(hashed))
                if options.count == "buckets":
                    times = sum(of[i] == of[j] for of in hashed)
                else:
                    times = sum(_near(i, j, s, hashed, sort, causal, options) for s in rounds)
                key = q[b, h, j] / math.sqrt(sum(float(x) ** 2 for x in q[b, h, j]))
                scale = options.scale or 1 / math.sqrt(q.shape[-1])
                powers[r, j] = math.exp(float(q[b, h, i] @ key) * scale - math.log(times))
            total = sum(powers.values())
            for (_, j), power in powers.items():
                out[b, h, i] += power / total * v[b, h, j]
            if not powers:
                out[b, h, i] = v[b, h, i]
    return out


def _hashed(x: Tensor, rotation: Tensor) -> list[int]:
    return torch.cat([x @ rotation, -x @ rotation], dim=-1).argmax(dim=-1).tolist()


def _near(
    i: int, j: int, r: int, hashed: Any, sort: Any, causal: bool, options: ReformerOptions
) -> bool:  # fmt: skip
    """Whether j is in the bucket of i and within reach, in round r."""
    if hashed[r][i] != hashed[r][j]:
        return False
    at, other = sort[r].index(i), sort[r].index(j)
    if causal and options.causal_window == "nearest":
        return 0 < at - other <= options.chunk
    return at // options.chunk - 1 <= other // options.chunk <= at // options.chunk


@by_form
@by_causal
@settings
def test_forms_are_the_equation(
    form: Callable[..., Tensor], causal: bool, window: Any, count: Any, chunk: int
) -> None:
    q, v, rotations = made()
    options = ReformerOptions(chunk=chunk, count=count, causal_window=window)
    for padding in (None, PADDING):
        given = {"causal": causal, "padding": padding, "options": options}
        expected = equation(q, v, rotations, **given)
        torch.testing.assert_close(form(q, v, rotations, **given), expected)


# ---- R1


@by_form
@by_causal
def test_one_bucket_is_full_attention_without_oneself(
    form: Callable[..., Tensor], causal: bool
) -> None:
    q, v, rotations = made()
    pairs = ~torch.eye(N, dtype=torch.bool)
    pairs = pairs.tril() if causal else pairs
    pairs[0, 0] = causal  # the first token of causal attention has itself alone
    expected = full.naive(q, unit(q), v, mask=pairs)
    options = ReformerOptions(chunk=N, rounds=R)
    found = form(q, v, torch.zeros_like(rotations), causal=causal, options=options)
    torch.testing.assert_close(found, expected)
    if causal:
        torch.testing.assert_close(found[:, :, 0], v[:, :, 0])


@by_form
@by_causal
@pytest.mark.parametrize("count", ["attended", "buckets"])
def test_rounds_are_one_softmax_over_the_union(
    form: Callable[..., Tensor], causal: bool, count: Any
) -> None:
    q, v, rotations = made(rounds=3)
    buckets = hash_buckets(q, rotations)
    pairs = (buckets[..., :, None] == buckets[..., None, :]).any(dim=2)
    pairs &= ~torch.eye(N, dtype=torch.bool)
    pairs = pairs.tril() if causal else pairs
    pairs |= torch.eye(N, dtype=torch.bool) & ~pairs.any(dim=-1, keepdim=True)
    options = ReformerOptions(chunk=N, count=count)
    found = form(q, v, rotations, causal=causal, options=options)
    torch.testing.assert_close(found, full.naive(q, unit(q), v, mask=pairs))


@by_form
@by_causal
@settings
def test_identical_rounds_change_nothing(
    form: Callable[..., Tensor], causal: bool, window: Any, count: Any, chunk: int
) -> None:
    q, v, rotations = made(rounds=1)
    options = ReformerOptions(chunk=chunk, count=count, causal_window=window)
    once, thrice = (
        form(q, v, rotations.expand(-1, rounds, -1, -1), causal=causal, options=options)
        for rounds in (1, 3)
    )
    torch.testing.assert_close(thrice, once)


@by_form
def test_the_two_counts_differ_only_where_a_bucket_exceeds_its_chunks(
    form: Callable[..., Tensor],
) -> None:
    q, v, rotations = made()
    for chunk, same in ((N, True), (2, False)):
        outs = [
            form(q, v, rotations, causal=True, options=ReformerOptions(chunk=chunk, count=count))  # type: ignore[arg-type]
            for count in ("attended", "buckets")
        ]
        assert torch.allclose(*outs) is same


@by_form
def test_large_scores_stay_finite(form: Callable[..., Tensor]) -> None:
    q, v, rotations = made()
    q = (q * 1e6).requires_grad_()
    out = form(q, v, rotations, options=ReformerOptions(chunk=5))
    assert torch.isfinite(out).all()
    assert torch.isfinite(torch.autograd.grad(out.sum(), q)[0]).all()
    nothing = form(torch.zeros_like(q), v, rotations, causal=True)  # keys of no direction
    torch.testing.assert_close(nothing[:, :, 2], v[:, :, :2].mean(dim=2))


@pytest.mark.parametrize("block", [1, 200, 1 << 18])
def test_chunks_are_the_same_in_blocks_of_any_size(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Some chunks of one head at a time, or all chunks of some heads."""
    monkeypatch.setitem(chunks.BLOCK, "cpu", block)
    made_ = [x.requires_grad_() for x in made()[:2]]
    rotations = made()[2]
    results = []
    for form in (naive, chunked):
        out = form(*made_, rotations, causal=True, options=ReformerOptions(chunk=4))
        results.append((out, *torch.autograd.grad(out.square().sum(), made_)))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)


# ---- the hash


@pytest.mark.parametrize("count", ["attended", "buckets"])
def test_compiled_it_is_the_same(count: Any) -> None:
    """To the compiler each pass is one operator; values and gradients, with a graph of both."""
    options = ReformerOptions(buckets=6, chunk=4, rounds=R, count=count)
    q, v, rotations = made()
    inputs = [q.requires_grad_(), v.requires_grad_()]

    def run(q: Tensor, v: Tensor) -> Tensor:
        return chunked(q, v, rotations, causal=True, padding=PADDING, options=options)

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    mine, theirs = compiled(*inputs), run(*inputs)
    torch.testing.assert_close(mine, theirs)
    arriving = torch.randn_like(mine)
    gradients = (torch.autograd.grad(out, inputs, arriving) for out in (mine, theirs))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_hash_depends_on_the_direction_alone() -> None:
    q, _, rotations = made(buckets=14)
    buckets = hash_buckets(q, rotations)
    assert set(buckets.flatten().tolist()) == set(range(14))
    assert torch.equal(hash_buckets(3.7 * q, rotations), buckets)
    assert torch.equal(hash_buckets(-q, rotations), (buckets + 7) % 14)


def test_near_vectors_share_buckets_more_often() -> None:
    q, _, rotations = made(n=200, rounds=19, buckets=8)
    shares = []
    for angle in (0.1, 0.5, 1.0, 1.5):
        across = torch.randn_like(q)
        across = unit(across - (across * unit(q)).sum(-1, keepdim=True) * unit(q))
        turned = unit(q) * math.cos(angle) + across * math.sin(angle)
        same = hash_buckets(turned, rotations) == hash_buckets(q, rotations)
        shares.append(same.double().mean().item())
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.85
    assert abs(shares[-1] - 1 / 8) < 0.05


def test_what_was_chosen_is_noted() -> None:
    q, v, rotations = made()
    for form in (naive, chunked):
        with record() as notes:
            form(q, v, rotations, padding=PADDING)
        (buckets,) = notes["buckets"]
        expected = hash_buckets(q, rotations).masked_fill(~PADDING[:, None, None], -1)
        assert torch.equal(buckets, expected)
        assert buckets.dtype == torch.int64


@by_causal
def test_attended_is_where_weights_are(causal: bool) -> None:
    q, v, rotations = made()
    options = ReformerOptions(chunk=3)
    given = {"causal": causal, "padding": PADDING, "options": options}
    with record() as notes:
        naive(q, v, rotations, **given)
    (weights,) = notes["weights"]
    pairs = attended(q, rotations, **given)
    alone = PADDING[:, None, :, None] & ~pairs.any(dim=-1, keepdim=True)
    alone = alone & torch.eye(N, dtype=torch.bool)
    assert alone.any() or not causal
    assert torch.equal(weights > 0, pairs | alone)


# ---- causality


def _changes_by_later_tokens(window: Any, form: Callable[..., Tensor]) -> Iterator[float]:
    options, half = ReformerOptions(chunk=4, causal_window=window), N // 2
    for seed in range(8):
        torch.manual_seed(seed)
        q, v, rotations = made()
        other = torch.cat([q[:, :, :half], torch.randn_like(q[:, :, half:])], dim=2)
        before, after = (form(x, v, rotations, causal=True, options=options) for x in (q, other))
        yield (before - after)[:, :, :half].abs().max().item()


@by_form
def test_chunks_as_printed_leak_and_the_nearest_do_not(form: Callable[..., Tensor]) -> None:
    """Tokens of the second half move the chunks of the first, though no value comes from them."""
    assert max(_changes_by_later_tokens("chunks", form)) > 0.1
    assert max(_changes_by_later_tokens("nearest", form)) < 1e-12  # rounded in another place


# ---- the layer


def test_the_layer_draws_what_its_seed_says_and_redraws() -> None:
    layers = [Reformer(12, 3, options=ReformerOptions(seed=seed)) for seed in (0, 0, 1)]
    first, same, other = (layer.rotations for layer in layers)
    assert first.shape == (3, 4, 4, 32)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    layers[0].redraw(torch.Generator().manual_seed(1))
    assert torch.equal(layers[0].rotations, other)
    layers[0].redraw(torch.Generator().manual_seed(1), rounds=2)
    assert layers[0].rotations.shape == (3, 2, 4, 32)
    assert layers[0].options.rounds == 2
    assert layers[0](torch.randn(1, 9, 12)).shape == (1, 9, 12)


def test_a_watched_layer_shows_its_weights() -> None:
    layer = Reformer(12, 3, causal=True, form="naive", options=ReformerOptions(chunk=4, buckets=4))
    with watch(layer) as seen:
        layer(torch.randn(2, 11, 12))
    (one,) = seen
    assert one.weights.shape == (2, 3, 11, 11)
    torch.testing.assert_close(one.weights.sum(-1), torch.ones(2, 3, 11))


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"buckets should be even.*try 8"):
        ReformerOptions(buckets=7)
    for name in ("buckets", "chunk", "rounds"):
        with pytest.raises(ValueError, match=f"{name} should be at least 1"):
            ReformerOptions(**{name: 0})
    layer = Reformer(12, 3)
    with pytest.raises(ValueError, match="rounds should be at least 1"):
        layer.redraw(torch.Generator(), rounds=0)


# ---- the peer


@pytest.mark.skipif(importlib.util.find_spec("reformer_pytorch") is None, reason="no peer")
@by_causal
def test_reformer_pytorch_agrees_when_told_to_follow_the_paper(causal: bool) -> None:
    """Comparing buckets, counting duplicates, with chunks as printed and the same rotations."""
    from reformer_pytorch.reformer_pytorch import LSHAttention

    n, chunk = 32, 4
    q, v, rotations = made(n=n, rounds=3, buckets=n // chunk)
    q, v, rotations = q[:, 0], v[:, 0, :, :D], rotations[0]
    buckets = hash_buckets(q[:, None], rotations[None])[:, 0]
    peer = LSHAttention(
        bucket_size=chunk, n_hashes=3, causal=causal,
        attend_across_buckets=False, allow_duplicate_attention=False,
    )  # fmt: skip
    offsets = torch.arange(3)[:, None] * (n // chunk)
    peer.hash_vectors = lambda *_, **__: (buckets + offsets).flatten(1)
    theirs, _, _ = peer(q, v)
    options = ReformerOptions(chunk=chunk, causal_window="chunks")
    ours = chunked(q[:, None], v[:, None], rotations[None], causal=causal, options=options)
    torch.testing.assert_close(theirs, ours[:, 0], rtol=1e-7, atol=1e-7)
