"""watch on attnlab's own modules and forms: each call once, whatever the form."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab.core.heads import Heads
from attnlab.core.patterns import causal, padding
from attnlab.core.probe import note, record
from attnlab.lens.watch import watch
from attnlab.mechanisms.dense import full, multi_query

B, N, M, HEADS, DIM = 2, 5, 7, 6, 42
REAL = torch.arange(N) < torch.tensor([[N], [N - 2]])


def modules():
    for form in full.CARD.forms:
        yield (
            f"full {form}",
            lambda form=form, **kw: full.FullAttention(DIM, HEADS, form=form, **kw),
        )
    for form in multi_query.CARD.forms:
        yield (
            f"multi_query {form}",
            lambda form=form, **kw: multi_query.MultiQueryAttention(
                DIM, HEADS, kv_heads=3, form=form, **kw
            ),
        )


MODULES = dict(modules())


@pytest.mark.parametrize("which", MODULES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_each_call_once(which, is_causal, padded, attend):
    module = MODULES[which](causal=is_causal).double()
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    pads = REAL if padded else None
    with watch(module) as seen:
        out = module(x, pads)
    assert torch.equal(out, module(x, pads))
    (record,) = seen
    q, k, v = module.heads.project(x, padding=pads)
    allowed = torch.ones(B, 1, N, N, dtype=torch.bool)
    allowed &= REAL[:, None, None] if padded else allowed
    allowed &= allowed.tril() if is_causal else allowed
    weights, mixed = attend(q, k, v, allowed, (DIM // HEADS) ** -0.5)
    assert record.shape == (B, HEADS, N, N)
    assert torch.equal(record.queries, q)
    g = record.keys.shape[1]
    assert torch.equal(record.keys, k.repeat_interleave(g // k.shape[1], dim=1))
    assert torch.equal(record.values, v.repeat_interleave(g // v.shape[1], dim=1))
    assert torch.allclose(record.weights, weights, atol=1e-12)
    assert torch.allclose(module.heads.merge(mixed), out, atol=1e-12)
    if bool(allowed.all()):
        assert record.mask is None
    else:
        assert torch.equal(record.mask.expand(record.shape), allowed.expand(record.shape))


@pytest.mark.parametrize("which", MODULES)
def test_cross_attention(which):
    module = MODULES[which]()
    context = torch.randn(B, M, DIM)
    with watch(module) as seen:
        module(torch.randn(B, N, DIM), context=context)
    assert seen[0].shape == (B, HEADS, N, M)
    assert torch.allclose(seen[0].weights.sum(-1), torch.ones(()))


def test_forms_called_bare_inside_another_module():
    class Mine(nn.Module):
        def forward(self, q, k, v):
            mask = causal() & padding(REAL)
            return full.naive(q, k, v, mask=mask) + full.fused(q, k, v, mask=mask)

    q, k, v = torch.randn(3, B, HEADS, N, 7).unbind()
    model = Mine()
    with watch(model) as seen:
        model(q, k, v)
    assert seen.names == ["Mine", "Mine#2"]
    assert torch.allclose(seen[0].weights, seen[1].weights, atol=1e-6)


def test_stacked_modules_have_their_paths():
    model = nn.Sequential(*(make() for make in MODULES.values()))
    with watch(model) as seen:
        model(torch.randn(B, N, DIM))
    assert seen.names == [str(i) for i in range(len(MODULES))]


@pytest.mark.parametrize("which", MODULES)
def test_what_backward_repeats_is_not_recorded_again(which):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = MODULES[which]()

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Checkpointed()
    with watch(model) as seen:
        model(torch.randn(B, N, DIM, requires_grad=True)).sum().backward()
    assert seen.names == ["inner"]


def test_a_mechanism_without_weights_says_where_to_look():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = Heads(DIM, HEADS)

        def forward(self, x):
            _, _, v = self.heads.project(x)
            return self.heads.merge(v.cumsum(-2))

    model = Sum()
    with watch(model) as seen:
        model(torch.randn(B, N, DIM))
    assert seen[0].queries.shape == (B, HEADS, N, DIM // HEADS)
    with pytest.raises(ValueError, match="mixing_matrix"):
        _ = seen[0].weights


def test_a_wrong_log_sum_exp_is_not_believed():
    class Liar(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = Heads(DIM, HEADS)

        def forward(self, x):
            q, _, v = self.heads.project(x)
            note("log_sum_exp", q.sum(-1))
            return self.heads.merge(v)

    model = Liar()
    with watch(model) as seen:
        model(torch.randn(B, N, DIM))
    with pytest.raises(ValueError, match="log-sum-exp that Liar noted"):
        _ = seen[0].weights


def test_another_recording_goes_on():
    module = full.FullAttention(DIM, HEADS, form="naive")
    with record() as notes, watch(module) as seen:
        module(torch.randn(B, N, DIM))
    assert torch.equal(notes["weights"][0], seen[0].weights)


@pytest.mark.parametrize("attention", ["full", "multi_query"])
def test_decoding_step_by_step_names_the_layer_that_attended(attention: str) -> None:
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(
        11, dim=12, layers=2, heads=2, max_len=16, kind="encoder_decoder", attention=attention
    )
    tokens = torch.randint(11, (1, 3))
    with attnlab.watch(model) as seen:
        attnlab.generate(model, tokens, 2, source=tokens)
    encoder = [f"encoder.blocks.{i}.attention" for i in range(2)]
    layers = [f"decoder.blocks.{i}.{part}" for i in range(2) for part in ("attention", "cross")]
    assert seen.names == [*encoder, *layers, *(f"{name}#2" for name in layers)]
    assert seen["decoder.blocks.1.attention#2"].shape == (1, 2, 1, 4)
    with attnlab.watch(model, only="decoder.blocks.0.*") as some:
        attnlab.generate(model, tokens, 1, source=tokens)
    assert some.names == layers[:2]
