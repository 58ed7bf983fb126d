"""Adaptive span: the equation pair by pair, its limits (identity R4), its penalty and its reach."""

import functools
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned import adaptive_span
from attnlab.mechanisms.learned.adaptive_span import (
    FORMS,
    AdaptiveSpanAttention,
    AdaptiveSpanOptions,
    banded,
    naive,
    penalty,
)

B, H, D, E = 2, 3, 5, 7
by_form_name = pytest.mark.parametrize("form", FORMS)
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int, m: int) -> list[Tensor]:
    shapes = ((B, H, n, D), (B, H, m, D), (B, H, m, E))
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


def spans(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ---- the equation


@by_form
@pytest.mark.parametrize(("n", "m"), [(13, 13), (5, 13), (97, 97)])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_each_weight_is_that_of_the_equation(
    form: Callable[..., Tensor], n: int, m: int, include_self: bool, dynamic: bool
) -> None:
    q, k, v = made(n, m)
    options = AdaptiveSpanOptions(max_span=11, ramp=4, include_self=include_self)
    z = torch.rand(B, H, n, dtype=torch.float64) * 14 - 2
    z = z if dynamic else z[0, :, 0]
    padding = torch.rand(B, m) > 0.2
    out = form(q, k, v, z, padding=padding, options=options)
    rows = range(n) if n < 20 else (0, 1, 31, 32, 47, 48, 96)
    for b, h, row in itertools.product(range(B), range(H), rows):
        span, i = float(z[b, h, row] if dynamic else z[h]), row + m - n
        total, expected = 0.0, torch.zeros(E, dtype=torch.float64)
        for j in range(i + include_self):
            soft = min(max((4 + span - (i - j)) / 4, 0), 1)
            if i - j <= 11 and padding[b, j]:
                power = soft * math.exp(float(q[b, h, row] @ k[b, h, j]) / math.sqrt(D))
                total, expected = total + power, expected + power * v[b, h, j]
        torch.testing.assert_close(out[b, h, row], expected / total if total else expected)


@pytest.mark.parametrize(("n", "m"), [(97, 97), (33, 70), (64, 64)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_blocks_in_several_parts_give_the_same(
    n: int, m: int, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients, those of the spans included."""
    options = AdaptiveSpanOptions(max_span=11, ramp=4)
    z = torch.rand(B, H, n, dtype=torch.float64) * 14 - 2
    inputs = [x.requires_grad_() for x in (*made(n, m), z if dynamic else z[0, :, 0])]
    padding = torch.rand(B, m) > 0.2
    expected = naive(*inputs, padding=padding, options=options)
    arriving = torch.randn_like(expected)
    theirs = torch.autograd.grad(expected, inputs, arriving)
    counted = []
    monkeypatch.setattr(
        adaptive_span, "checkpoint", lambda f, *x, **y: counted.append(f) or checkpoint(f, *x, **y)
    )
    for at_once, parts in ((1 << 22, 0), (B * H * 16 * 43, None), (1, -(-n // 32))):
        counted.clear()
        monkeypatch.setattr(adaptive_span, "AT_ONCE", at_once)
        out = banded(*inputs, padding=padding, options=options)
        torch.testing.assert_close(out, expected)
        mine = torch.autograd.grad(out, inputs, arriving)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other)
        assert parts is None or len(counted) == parts


@by_form
def test_the_released_code_counts_distances_from_zero(form: Callable[..., Tensor]) -> None:
    """Softmax over the past, times the mask, divided by the sum: the same for spans one longer."""
    n, z, ramp = 17, spans(0.0, 3.5, 9.0), 6
    q, k, v = made(n, n)
    distances = torch.arange(n)[:, None] - torch.arange(n)
    past = (distances > 0).expand(n, n)
    scores = (q @ k.mT * D**-0.5).masked_fill(~past, -torch.inf)
    soft = ((z[:, None, None] + ramp - (distances - 1)) / ramp).clamp(0, 1)
    weights = scores.softmax(-1).nan_to_num() * soft
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-8)
    out = form(q, k, v, z + 1, options=AdaptiveSpanOptions(ramp=ramp))
    torch.testing.assert_close(out, weights @ v, atol=2e-6, rtol=1e-6)


# ---- R4: limits


@by_form
@pytest.mark.parametrize("include_self", [False, True])
def test_a_long_span_is_full_attention_to_the_past(
    form: Callable[..., Tensor], include_self: bool
) -> None:
    q, k, v = made(41, 41)
    past = torch.ones(41, 41, dtype=torch.bool).tril(0 if include_self else -1)
    out = form(q, k, v, spans(41, 50, 1e6), options=AdaptiveSpanOptions(include_self=include_self))
    torch.testing.assert_close(out, full.naive(q, k, v, mask=past))


@by_form
@pytest.mark.parametrize("reach", [1, 4, 37])
def test_a_ramp_of_one_token_is_a_window(form: Callable[..., Tensor], reach: int) -> None:
    q, k, v = made(41, 41)
    window = patterns.local(reach) & patterns.causal() & ~patterns.local(0)
    out = form(q, k, v, spans(reach, reach, reach), options=AdaptiveSpanOptions(ramp=1))
    torch.testing.assert_close(out, full.naive(q, k, v, mask=window))


@by_form
def test_nothing_is_seen_by_the_first_token_or_with_a_span_below_the_ramp(
    form: Callable[..., Tensor],
) -> None:
    q, k, v = made(9, 9)
    out = form(q, k, v, spans(-8.0, 2.0, -100.0), options=AdaptiveSpanOptions(ramp=4))
    assert (out[:, [0, 2]] == 0).all()
    assert (out[:, 1, 0] == 0).all()
    assert (out[:, 1, 1:] != 0).any(-1).all()


@by_form
def test_no_key_is_further_back_than_the_longest_span(form: Callable[..., Tensor]) -> None:
    q, k, v = (x.requires_grad_() for x in made(29, 29))
    out = form(q, k, v, spans(500, 500, 500), options=AdaptiveSpanOptions(max_span=6))
    (grad,) = torch.autograd.grad(out[:, :, 20].sum(), v)
    seen = (grad != 0).any(-1)[0, 0].nonzero().flatten().tolist()
    assert seen == list(range(14, 20))


# ---- reach


@pytest.mark.parametrize("z", [-3.0, 0.0, 0.4, 7.0, 12.5, 300.0])
@pytest.mark.parametrize("ramp", [1, 8])
def test_the_reach_is_the_last_distance_with_a_weight(z: float, ramp: int) -> None:
    options, span = AdaptiveSpanOptions(max_span=50, ramp=ramp), spans(-5.0, z)
    weights = options.mask(torch.arange(200), span.max())
    last = int(weights.nonzero().max()) if (weights > 0).any() else 1
    assert options.reach(span, 200) == last
    assert options.reach(span, 4) == min(last, 3)


def test_a_span_that_is_not_a_number_reaches_all() -> None:
    assert AdaptiveSpanOptions(max_span=50).reach(spans(math.nan), 200) == 50


def test_the_banded_form_holds_what_the_longest_span_reaches() -> None:
    q, k, v = made(512, 512)
    sizes = []
    for longest in (20, 200):
        form = functools.partial(banded, options=AdaptiveSpanOptions(ramp=8))
        counted = count(form, q, k, v, spans(3, longest, 0))
        sizes.append(counted.largest_tensor.elements)
    reach = [20 + 8 - 1, 200 + 8 - 1]
    blocks = [max(32, each // 2) for each in reach]
    expected = [B * H * -(-512 // c) * c * (c + r) for c, r in zip(blocks, reach, strict=True)]
    assert sizes == expected


# ---- module


def test_the_dynamic_span_is_a_sigmoid_of_the_token() -> None:
    layer = AdaptiveSpanAttention(12, H, AdaptiveSpanOptions(max_span=40), dynamic=True)
    assert isinstance(layer.to_span, nn.Linear)
    nn.init.normal_(layer.to_span.bias)
    x = torch.randn(B, 9, 12)
    with record() as notes:
        layer(x)
    u, b = layer.to_span.weight.detach(), layer.to_span.bias.detach()
    expected = [[40 / (1 + math.exp(-float(u[h] @ t + b[h]))) for t in x[1]] for h in range(H)]
    torch.testing.assert_close(notes["span"][0][1], torch.tensor(expected))


def test_the_penalty_is_the_mean_span_of_each_layer() -> None:
    layers = nn.Sequential(
        AdaptiveSpanAttention(12, H, AdaptiveSpanOptions(max_span=40), start=10.0),
        AdaptiveSpanAttention(12, H, AdaptiveSpanOptions(max_span=40), dynamic=True),
    )
    x = torch.randn(B, 9, 12)
    with record() as notes:
        layers(x)
    _, of_tokens = notes["span"]
    torch.testing.assert_close(penalty(notes), 10 + of_tokens.mean())
    (grad,) = torch.autograd.grad(penalty(notes), layers[0].share)
    torch.testing.assert_close(grad, torch.full((H,), 40 / H))


@by_form_name
def test_padded_tokens_do_not_count_in_the_penalty(form: str) -> None:
    layer = AdaptiveSpanAttention(
        12, H, AdaptiveSpanOptions(max_span=40), dynamic=True, form=form
    ).double()
    x, real = torch.randn(B, 9, 12, dtype=torch.float64), torch.tensor([[True], [False]])
    real = real | (torch.arange(9) < 4)
    with record() as notes:
        layer(x, real)
    spans = layer.span(x).transpose(1, 2)[real]  # of the real tokens alone
    torch.testing.assert_close(penalty(notes), spans.mean())


def test_the_penalty_of_no_layer_is_refused() -> None:
    with record() as notes:
        nn.Linear(3, 3)(torch.randn(2, 3))
    with pytest.raises(KeyError, match="no note is called 'span'"):
        penalty(notes)


def test_spans_shrink_under_the_penalty_and_grow_where_they_help() -> None:
    """The target is the mean of tokens 10 to 13 back, which a span of 2 reaches by the ramp."""
    found = []
    for price in (0.0, 1.0):
        torch.manual_seed(0)
        options = AdaptiveSpanOptions(max_span=32, ramp=16)
        layer = AdaptiveSpanAttention(8, 1, options, start=2.0)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            x = torch.randn(4, 48, 8)
            with record() as notes:
                out = layer(x)[:, 14:]
            target = torch.stack([x[:, i - 13 : i - 9].mean(1) for i in range(14, 48)], 1)
            ((out - target).square().mean() + price * penalty(notes)).backward()
            optimizer.step()
        found.append(penalty(notes).item())
    assert found[0] > 3
    assert found[1] < 1


# ---- wrong options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"start": 41.0}, "start is a span between 0 and max_span=40 tokens, got 41"),
        ({"start": -1.0}, "start is a span between 0 and max_span=40 tokens, got -1"),
        ({"start": 3.0, "dynamic": True}, "dynamic ones start at half of max_span"),
        ({"ramp": 0}, "ramp should be at least 1, got 0"),
        ({"max_span": 0}, "max_span should be at least 1, got 0"),
        ({"max_span": -3}, "max_span should be at least 1, got -3"),
    ],
)
def test_spans_that_cannot_be_are_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attnlab.build("adaptive_span", dim=12, heads=3, causal=True, **{"max_span": 40, **given})


def test_spans_for_other_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="h is 2, expected 3"):
        naive(*made(5, 5), spans(1, 2))
