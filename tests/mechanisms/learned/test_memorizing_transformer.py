"""The Memorizing Transformer: the equation by loops, its limits, gradients, cuts, documents."""

import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns, search
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned import memorizing_transformer
from attnlab.mechanisms.learned.memorizing_transformer import (
    FORMS,
    MemorizingAttention,
    MemorizingOptions,
    MemoryState,
    chunked,
    naive,
    texts,
)
from tests.mechanisms.memory import segments

B, H, N, D, E = 2, 3, 23, 5, 7
SMALL = MemorizingOptions(segment=4, cache=3, memory=9, neighbours=2)
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = N) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    shapes = ((B, H, n, D), (B, H, n, D), (B, H, n, E), (H,), (H,))
    return tuple(torch.randn(s, dtype=torch.float64) for s in shapes)


def units(x: Tensor) -> Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt()


def softmax(scores: dict[int, float]) -> dict[int, float]:
    total = sum(math.exp(s) for s in scores.values())
    return {j: math.exp(s) / total for j, s in scores.items()}


def by_loops(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor, scale: Tensor, o: MemorizingOptions
) -> tuple[Tensor, Tensor]:
    """Query by query, from the words of the paper; the weights of all keys, and the output."""
    weights = torch.zeros(B, H, N, N, dtype=torch.float64)
    q, k = (units(x) if o.normalise else x for x in (q, k))
    for b in range(B):
        for h in range(H):
            stored: list[int] = []
            for i in range(N):
                start = i // o.segment * o.segment
                if i == start:
                    end = start if o.stored == "segment" else max(0, start - o.cache)
                    stored = list(range(end))[-o.memory :] if o.memory else []
                dot = {j: float(q[b, h, i] @ k[b, h, j]) for j in range(i + 1)}
                best = sorted(stored, key=lambda j: -dot[j])[: o.neighbours]
                near = range(max(0, start - o.cache), i + 1)
                g = 1 / (1 + math.exp(-float(gate[h])))
                for j, w in softmax({j: float(scale[h]) * dot[j] for j in near}).items():
                    weights[b, h, i, j] += (1 - g) * w
                for j, w in softmax({j: float(scale[h]) * dot[j] for j in best}).items():
                    weights[b, h, i, j] += g * w
    return weights, weights @ v


@by_form
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        MemorizingOptions(segment=4, cache=3, memory=9, neighbours=40, stored="leaving"),
        MemorizingOptions(segment=5, cache=0, memory=6, neighbours=3, normalise=False),
        MemorizingOptions(segment=3, cache=8, memory=2, neighbours=2),
    ],
    ids=str,
)
def test_the_equation_by_loops(form, options) -> None:
    inputs = made()
    weights, out = by_loops(*inputs, options)
    with record() as notes:
        torch.testing.assert_close(form(*inputs, options=options), out, rtol=1e-6, atol=1e-6)
    if form is naive:
        torch.testing.assert_close(notes.last("weights"), weights)


@pytest.mark.parametrize(
    "options", [SMALL, MemorizingOptions(segment=4, cache=11, memory=9, neighbours=2)]
)
def test_what_is_fetched_is_noted(options: MemorizingOptions) -> None:
    """By both forms alike: positions, best first, their weights, and the gate."""
    inputs, (q, k, *_) = made(), made()
    with record() as dense:
        naive(*inputs, options=options)
    with record() as fast:
        chunked(*inputs, options=options)
    for name in ("neighbours", "neighbour_weights", "gate"):
        torch.testing.assert_close(fast.last(name), dense.last(name))
    found = fast.last("neighbours")
    assert found.shape == (B, H, N, 2)
    assert (found[:, :, :4] == search.NOTHING).all()  # the first segment has no memory yet
    stored = (units(q) @ units(k).mT)[:, :, 21, 11:20]  # the nine before the segment of query 21
    assert torch.equal(found[:, :, 21], stored.topk(2).indices + 11)
    torch.testing.assert_close(fast.last("gate"), torch.sigmoid(inputs[3]))
    sums = fast.last("neighbour_weights")[:, :, 4:].sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


# ---- U1, U2


@by_form
@pytest.mark.parametrize("cache", [0, 2, 5, 50])
def test_one_softmax_over_everything_is_full_attention(form, cache: int) -> None:
    """U1: all neighbours of a memory of all that has left the cache."""
    q, k, v, _, scale = made()
    options = MemorizingOptions(segment=4, cache=cache, memory=N, neighbours=N, stored="leaving")
    expected = full.naive(
        units(q) * scale.view(H, 1, 1), units(k), v, mask=patterns.causal(), scale=1.0
    )
    torch.testing.assert_close(form(q, k, v, None, scale, options=options), expected)


@by_form
def test_a_gate_far_to_one_side_leaves_one_softmax(form) -> None:
    """U2: local attention alone, or the renormalised weights of full attention."""
    q, k, v, gate, scale = made()
    everything = MemorizingOptions(segment=4, cache=3, memory=N, neighbours=5)
    i = torch.arange(N)
    start = (i - i % 4)[:, None]
    rotated = units(q) * scale.view(H, 1, 1)
    near = (i <= i[:, None]) & (i >= start - 3)
    local = form(q, k, v, gate - 1e9, scale, options=everything)
    torch.testing.assert_close(local, full.naive(rotated, units(k), v, mask=near, scale=1.0))
    with record() as notes:
        far = form(q, k, v, gate + 1e9, scale, options=everything)
    chosen = torch.zeros(B, H, N, N + 1, dtype=torch.bool)
    chosen = chosen.scatter(-1, notes.last("neighbours") % (N + 1), True)[..., :N]
    weights = (rotated @ units(k).mT).softmax(-1) * chosen
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
    torch.testing.assert_close(far, weights @ v)
    assert (far[:, :, :4] == 0).all()


@by_form
def test_sizes_of_queries_and_keys_do_not_matter(form) -> None:
    q, k, v, gate, scale = made()
    sizes = torch.rand(B, H, N, 1, dtype=torch.float64) + 0.5
    out = form(q * sizes, k * sizes.flip(2), v, gate, scale, options=SMALL)
    torch.testing.assert_close(out, form(q, k, v, gate, scale, options=SMALL))
    free = MemorizingOptions(**{**vars(SMALL), "normalise": False})
    changed = form(q * sizes, k, v, gate, scale, options=free)
    assert not torch.allclose(changed, form(q, k, v, gate, scale, options=free))


@by_form
def test_an_empty_memory_gives_nothing(form) -> None:
    q, k, v, gate, scale = made(4)  # one segment
    local = full.naive(
        units(q) * scale.view(H, 1, 1), units(k), v, mask=patterns.causal(), scale=1.0
    )
    expected = (1 - torch.sigmoid(gate)).view(H, 1, 1) * local
    torch.testing.assert_close(form(q, k, v, gate, scale, options=SMALL), expected)


# ---- gradients


@by_form
def test_no_gradient_enters_cache_or_memory(form) -> None:
    q, k, v, gate, scale = (x.requires_grad_() for x in made())
    out = form(q, k, v, gate, scale, options=SMALL)
    *past, of_gate = torch.autograd.grad(out[:, :, 20:].sum(), [k, v, gate])
    for gradient in past:
        assert (gradient[:, :, :20] == 0).all()
        assert (gradient[:, :, 20:] != 0).any()
    assert (of_gate != 0).all()


@by_form
def test_a_gradient_flows_through_the_softmax_over_what_was_fetched(form) -> None:
    q, k, v, gate, scale = made()
    out = form(q.requires_grad_(), k, v, gate + 1e9, scale, options=SMALL)  # the memory alone
    (gradient,) = torch.autograd.grad(out[:, :, 8:].square().sum(), q)
    assert (gradient[:, :, 8:].abs().sum(-1) > 0).all()


# ---- segments and documents


def layer(options: MemorizingOptions = SMALL, **more) -> MemorizingAttention:
    torch.manual_seed(1)
    made = MemorizingAttention(12, 3, options=options, **more).double()
    torch.nn.init.normal_(made.scale)
    if made.gate is not None:
        torch.nn.init.normal_(made.gate)
    return made


def read(module: MemorizingAttention, x: Tensor, sizes: list[int]) -> Tensor:
    parts, state = [], None
    for piece in x.split(sizes, dim=1):
        out, state = module.step(piece, state)
        parts.append(out)
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("sizes", [[N], [4] * 5 + [3], [1] * N, [2, 7, 1, 9, 4], [20, 3]], ids=str)
@pytest.mark.parametrize("stored", ["segment", "leaving"])
def test_any_cut_gives_the_same(sizes: list[int], stored: str) -> None:
    """Values, and where the cuts are, gradients as well: they end at segments, not at calls."""
    module = layer(MemorizingOptions(**{**vars(SMALL), "stored": stored}))
    x = torch.randn(2, N, 12, dtype=torch.float64)
    expected, out = module(x), read(module, x, sizes)
    torch.testing.assert_close(out, expected)
    parameters = list(module.parameters())
    mine, theirs = (torch.autograd.grad(y.square().sum(), parameters) for y in (out, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


def kept(state: MemoryState) -> tuple[Tensor, ...]:
    return (*state.past[:2], *state.own, state.past.memory.keys, state.begins)


def test_the_state_is_bounded_and_is_not_changed() -> None:
    module = layer()
    x = torch.randn(2, 60, 12, dtype=torch.float64)
    _, state = module.step(x[:, :41])
    before = [y.clone() for y in kept(state)]
    once, after = module.step(x[:, 41:], state)
    again, _ = module.step(x[:, 41:], state)
    assert torch.equal(once, again)
    assert all(map(torch.equal, before, kept(state)))
    assert (state.length, after.length) == (41, 60)
    for each in (state, after):
        assert each.past.length == SMALL.reach
        assert each.own.length == each.length % SMALL.segment


def test_within_a_segment_the_past_is_not_copied() -> None:
    module = layer()
    x = torch.randn(2, 44, 12, dtype=torch.float64)
    _, state = module.step(x[:, :41])
    _, next_ = module.step(x[:, 41:43], state)
    assert next_.past is state.past
    _, last = module.step(x[:, 43:], next_)
    assert last.past is not state.past
    assert torch.equal(last.past.keys[:, :, -2], next_.own.keys[:, :, 2])


def test_a_state_of_other_segments_is_refused() -> None:
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    _, state = layer().step(x)
    with pytest.raises(ValueError, match="other segments than of 5 tokens"):
        layer(MemorizingOptions(**{**vars(SMALL), "segment": 5})).step(x, state)


def test_documents_do_not_read_each_other() -> None:
    """In the middle of a segment, and each sequence of the batch for itself."""
    module = layer()
    x = torch.randn(2, 30, 12, dtype=torch.float64)
    _, state = module.step(x[:, :8])
    out, _ = module.step(x[:, 8:], state.cleared(torch.tensor([True, False])))
    torch.testing.assert_close(out[0], module(x[:1, 8:])[0])  # 8 is a multiple of the segment
    torch.testing.assert_close(out[1], module(x[1:])[0, 8:])
    _, state = module.step(x[:, :10])
    y = x.clone()
    y[0, :10] = torch.randn(10, 12)
    _, other = module.step(y[:, :10])
    ended = torch.tensor([True, True])
    mine, _ = module.step(x[:, 10:], state.cleared(ended))
    theirs, _ = module.step(x[:, 10:], other.cleared(ended))
    assert torch.equal(mine, theirs)


def test_a_needle_far_beyond_the_cache_is_found() -> None:
    q, k, v, gate, scale = made(200)
    options = MemorizingOptions(segment=4, cache=3, memory=200, neighbours=1)
    q = q.clone()
    q[:, :, 190] = k[:, :, 17]
    with record() as notes:
        out = chunked(q, k, v, gate + 1e9, scale, options=options)
    assert (notes.last("neighbours")[:, :, 190, 0] == 17).all()
    torch.testing.assert_close(out[:, :, 190], v[:, :, 17])


def test_local_biases_by_distance() -> None:
    """Of local keys alone; padding takes no distance."""
    alibi = attnlab.build("alibi", dim=12, heads=3, causal=True)
    module = layer(positions=alibi)
    assert module._local_bias().shape == (3, SMALL.local)
    x = torch.randn(2, N, 12, dtype=torch.float64)
    q, k, v = module.heads.project(x)
    bias = module._local_bias().double()
    inputs = (q, k, v, module.gate, module.scale)
    dense = naive(*inputs, local_bias=bias, options=SMALL)
    torch.testing.assert_close(chunked(*inputs, local_bias=bias, options=SMALL), dense)
    assert not torch.allclose(dense, naive(*inputs, options=SMALL))
    i = torch.arange(4)
    by_hand = units(q[:, :, :4]) @ units(k[:, :, :4]).mT * module.scale.view(3, 1, 1)
    by_hand = by_hand + alibi(i, i)
    hidden = by_hand.masked_fill(i > i[:, None], -torch.inf).softmax(-1) @ v[:, :, :4]
    expected = (1 - torch.sigmoid(module.gate)).view(3, 1, 1) * hidden
    torch.testing.assert_close(dense[:, :, :4], expected)
    torch.testing.assert_close(read(module, x, [5, 1, 9, 8]), module(x))


# ---- approximate search


def test_a_long_memory_may_be_searched_by_codes() -> None:
    """Most of the true neighbours are found, by ``forward`` and by ``step`` alike; a memory of few
    keys is searched exactly."""
    pytest.importorskip("faiss", reason="for the approximate search")
    torch.manual_seed(5)
    sizes = {"segment": 300, "cache": 0, "memory": 1200, "neighbours": 8}
    module = layer(MemorizingOptions(**sizes, search="approximate")).float()
    exact = layer(MemorizingOptions(**sizes)).float()
    x = torch.randn(2, 1800, 12)
    found = []
    for one in (module, exact):
        with record() as notes:
            out = one(x)
        found.append((out, notes.last("neighbours")))
    (mine, near), (theirs, true) = found
    assert torch.equal(near[:, :, :900], true[:, :, :900])  # memories of up to 600 keys
    torch.testing.assert_close(mine[:, :900], theirs[:, :900])
    share = search.recall(near[:, :, 900:], true[:, :, 900:])
    assert 0.8 < share < 1
    torch.testing.assert_close(read(module, x, [700, 600, 500]), mine)


def test_the_approximate_search_of_documents() -> None:
    """Sees nothing of the one before, once a document has ended."""
    pytest.importorskip("faiss", reason="for the approximate search")
    sizes = {"segment": 350, "cache": 0, "memory": 1400, "neighbours": 4}
    module = layer(MemorizingOptions(**sizes, search="approximate")).float()
    x = torch.randn(2, 1800, 12)
    _, state = module.step(x[:, :1000])
    state = state.cleared(torch.tensor([True, False]))
    with record() as notes:
        module.step(x[:, 1000:], state)
    first, second = notes.last("neighbours")
    assert ((first >= 1000) | (first == search.NOTHING)).all()
    assert (first[:, 700:] >= 1000).all()
    assert ((second < 1000) & (second >= 0)).any()


# ---- refusals


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="the newest keys are in both"):
        MemorizingAttention(12, 3, gated=False)
    _, state = layer().step(torch.randn(2, 5, 12, dtype=torch.float64))
    with pytest.raises(ValueError, match="one bool for each of the 2 sequences"):
        state.cleared(torch.tensor([True]))
    with pytest.raises(ValueError, match="neighbours should be at least 1"):
        MemorizingOptions(neighbours=0)
    assert layer(MemorizingOptions(memory=0)).gate is None
    assert memorizing_transformer.CARD.causal == "always"


@pytest.mark.parametrize("room", [1, 900, 10**9], ids=["one", "some", "all"])
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        MemorizingOptions(segment=4, cache=3, memory=9, neighbours=40, stored="leaving"),
        MemorizingOptions(segment=5, cache=0, memory=6, neighbours=3, normalise=False),
        MemorizingOptions(segment=3, cache=8, memory=0),
        MemorizingOptions(segment=64, cache=8, memory=90),
    ],
    ids=str,
)
def test_segments_together_are_segments_one_by_one(
    options: MemorizingOptions, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU computes many segments in one call: the same values and gradients."""
    torch.manual_seed(0)
    x = torch.randn(B, N, 12, dtype=torch.float64)
    for positions in (None, attnlab.build("alibi", dim=12, heads=3, causal=True)):
        layer = MemorizingAttention(12, 3, options=options, positions=positions).double()
        segments.together_gives_the_same(monkeypatch, texts, layer, x, room)
