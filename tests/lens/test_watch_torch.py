"""watch on PyTorch's own attention: the function, nn.MultiheadAttention, nn.Transformer*."""

import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.lens.watch import watch

B, H, N, M, D, E = 2, 3, 5, 7, 4, 6
FLOAT = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.bfloat16: 1e-2,
}


class Bare(nn.Module):
    """A model that calls SDPA with whatever it is given."""

    def forward(self, *args, **kwargs):
        return F.scaled_dot_product_attention(*args, **kwargs)


def tensors(dtype=torch.float64, n=N, m=M, h=H, g=H):
    return (
        torch.randn(B, h, n, D, dtype=dtype),
        torch.randn(B, g, m, D, dtype=dtype),
        torch.randn(B, g, m, E, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", FLOAT, ids=str)
def test_plain(attend, dtype):
    q, k, v = tensors(dtype)
    model = Bare()
    with watch(model) as seen:
        out = model(q, k, v)
    assert torch.equal(out, model(q, k, v))
    (record,) = seen
    assert (record.name, record.form, record.shape) == ("Bare", "fused", (B, H, N, M))
    assert record.mask is None
    assert record.bias is None
    assert record.scale == D**-0.5
    for own, given in ((record.queries, q), (record.keys, k), (record.values, v)):
        assert own.data_ptr() == given.data_ptr()  # a view: nothing is copied
        assert torch.equal(own, given)
    weights, mixed = attend(q, k, v, None, D**-0.5)
    assert torch.allclose(
        record.weights.double(), weights, atol=1e-6 if dtype.itemsize < 8 else 1e-12
    )
    assert torch.allclose(out.double(), mixed, atol=FLOAT[dtype])


def masks():
    keys = torch.arange(M) < torch.tensor([[M], [M - 3]])
    zeros = torch.zeros(B, 1, N, M, dtype=torch.float64)
    lowest = torch.finfo(torch.float64).min
    return {
        "bool": keys[:, None, None],
        "bool n m": torch.rand(N, M) > 0.4,
        "float": zeros.masked_fill(torch.rand(B, 1, N, M) > 0.6, -math.inf),
        "lowest": zeros[0, 0].masked_fill(torch.rand(N, M) > 0.6, lowest),
    }


@pytest.mark.parametrize("which", ["bool", "bool n m", "float", "lowest"])
def test_masks(attend, which):
    mask = masks()[which]
    mask[..., 0] = mask.dtype == torch.bool  # no empty rows here
    q, k, v = tensors()
    model = Bare()
    with watch(model) as seen:
        out = model(q, k, v, attn_mask=mask, scale=0.3)
    allowed = mask if mask.dtype == torch.bool else mask == 0
    weights, mixed = attend(q, k, v, allowed, 0.3)
    assert seen[0].mask.dtype == torch.bool
    assert torch.equal(seen[0].mask.expand(B, H, N, M), allowed.expand(B, H, N, M))
    assert seen[0].scale == 0.3
    assert seen[0].bias is None
    assert torch.allclose(seen[0].weights, weights, atol=1e-12)
    assert torch.allclose(out, mixed, atol=1e-12)


def test_bias_is_kept_apart_from_the_mask(attend):
    bias = torch.randn(H, N, M, dtype=torch.float64)
    blocked = torch.rand(H, N, M) > 0.7
    blocked[..., 0] = False
    q, k, v = tensors()
    model = Bare()
    with watch(model) as seen:
        model(q, k, v, bias.masked_fill(blocked, -math.inf))
    assert torch.equal(seen[0].bias[0], bias.masked_fill(blocked, 0))
    assert torch.equal(seen[0].mask[0], ~blocked)
    weights, _ = attend(q, k, v, ~blocked, D**-0.5, bias)
    assert torch.allclose(seen[0].weights, weights, atol=1e-12)


def test_causal_is_top_left(attend):
    q, k, v = tensors()
    model = Bare()
    with watch(model) as seen:
        out = model(q, k, v, is_causal=True)
    triangle = torch.ones(N, M, dtype=torch.bool).tril()
    assert torch.equal(seen[0].mask, triangle[None, None])
    weights, mixed = attend(q, k, v, triangle, D**-0.5)
    assert torch.allclose(seen[0].weights, weights, atol=1e-12)
    assert torch.allclose(out, mixed, atol=1e-12)


def test_grouped_queries(attend):
    q, k, v = tensors(h=6, g=3)
    model = Bare()
    with watch(model) as seen:
        out = model(q, k, v, enable_gqa=True)
    record = seen[0]
    assert record.shape == (B, 6, N, M)
    assert record.queries.shape == (B, 6, N, D)
    assert record.keys.shape == (B, 3, M, D)
    assert record.values.shape == (B, 3, M, E)
    weights, mixed = attend(q, k, v, None, D**-0.5)
    assert torch.allclose(record.weights, weights, atol=1e-12)
    assert torch.allclose(out, mixed, atol=1e-12)


def test_empty_rows_are_zero():
    q, k, v = tensors()
    mask = torch.ones(N, M, dtype=torch.bool)
    mask[2] = False
    model = Bare()
    with watch(model) as seen:
        out = model(q, k, v, attn_mask=mask)
    assert not seen[0].weights[:, :, 2].any()
    assert not out[:, :, 2].any()


def test_dropout_is_reported_and_weights_are_before_it(attend):
    q, k, v = tensors()
    model = Bare()
    with watch(model) as seen:
        model(q, k, v, dropout_p=0.5)
    assert seen[0].dropout == 0.5
    assert torch.allclose(seen[0].weights, attend(q, k, v, None, D**-0.5)[0], atol=1e-12)


def test_three_axes_are_one_head():
    model = Bare()
    q, k, v = (t[:, 0] for t in tensors())
    with watch(model) as seen:
        model(q, k, v)
    assert seen[0].queries.shape == (B, 1, N, D)
    assert seen[0].weights.shape == (B, 1, N, M)


# ---- nn.MultiheadAttention

# The last one is PyTorch's fast path.
MODES = pytest.mark.parametrize(
    ("training", "grad"),
    [(True, True), (False, True), (False, False)],
    ids=["train", "eval", "eval without gradients"],
)


def mha(batch_first=True, **options):
    return nn.MultiheadAttention(H * D * 2, 2 * H, batch_first=batch_first, **options).double()


@MODES
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "length first"])
@pytest.mark.parametrize("masked", ["none", "padding", "causal", "float"])
def test_multihead_attention(training, grad, need_weights, batch_first, masked):
    module = mha(batch_first).train(training)
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)
    x = x if batch_first else x.transpose(0, 1)
    blocked = torch.arange(N) >= torch.tensor([[N], [N - 2]])
    triangle = torch.ones(N, N, dtype=torch.bool).triu(1)
    bias = torch.randn(N, N, dtype=torch.float64)
    options = {
        "none": {},
        "padding": {"key_padding_mask": blocked},
        "causal": {"attn_mask": triangle, "is_causal": not need_weights},
        "float": {"attn_mask": bias.masked_fill(triangle, -math.inf)},
    }[masked]
    with torch.set_grad_enabled(grad):
        expected, _ = module(x, x, x, need_weights=need_weights, **options)
        with watch(module) as seen:
            out, _ = module(x, x, x, need_weights=need_weights, **options)
    assert torch.equal(out, expected)
    module.train()  # the plain path, and its own weights
    options.pop("is_causal", None)
    _, weights = module(x, x, x, need_weights=True, average_attn_weights=False, **options)
    (record,) = seen
    assert record.shape == (B, 2 * H, N, N)
    assert record.queries.shape == record.keys.shape == (B, 2 * H, N, D)
    assert torch.allclose(record.weights, weights, atol=1e-12)
    assert record.scale == pytest.approx(D**-0.5)
    allowed = {
        "none": None,
        "padding": ~blocked[:, None, None],
        "causal": ~triangle,
        "float": ~triangle,
    }
    if masked == "none":
        assert record.mask is None
    else:
        assert torch.equal(record.mask.expand(record.shape), allowed[masked].expand(record.shape))
    if masked == "float":
        assert torch.allclose(
            record.bias.expand(record.shape), bias.masked_fill(triangle, 0).expand(record.shape)
        )
    else:
        assert record.bias is None


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_extra_keys_are_recorded(options, need_weights):
    module = mha(**options)
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)
    _, weights = module(x, x, x, average_attn_weights=False)
    with watch(module) as seen:
        module(x, x, x, need_weights=need_weights)
    assert seen[0].shape == (B, 2 * H, N, N + 1)
    assert torch.allclose(seen[0].weights, weights, atol=1e-12)


def test_unbatched_and_cross_attention():
    module = nn.MultiheadAttention(H * D, H, kdim=11, vdim=13).double()
    q, k, v = (torch.randn(n, w, dtype=torch.float64) for n, w in ((N, H * D), (M, 11), (M, 13)))
    _, weights = module(q, k, v, average_attn_weights=False)
    for need_weights in (True, False):
        with watch(module) as seen:
            module(q, k, v, need_weights=need_weights)
        assert seen[0].shape == (1, H, N, M)
        assert torch.allclose(seen[0].weights[0], weights, atol=1e-12)


def test_dropout_in_multihead_attention():
    module = mha(dropout=0.5)
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)
    with watch(module) as seen:
        module(x, x, x)
    assert seen[0].dropout == 0.5
    assert torch.allclose(seen[0].weights.sum(-1), torch.ones((), dtype=torch.float64))


# ---- nn.TransformerEncoder


def encoder(layers=3, norm_first=False, dtype=torch.float32):
    layer = nn.TransformerEncoderLayer(
        H * D * 2, 2 * H, dim_feedforward=17, batch_first=True, norm_first=norm_first, dropout=0.0
    )
    nested = not norm_first  # PyTorch warns that it would be ignored
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=nested).to(dtype)


PADDED = torch.arange(N) >= torch.tensor([[N], [N - 2]])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@MODES
@pytest.mark.parametrize("kind", ["padding", "causal", "both", "none"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_has_its_mask_in_every_layer(training, grad, kind, norm_first):
    model = encoder(norm_first=norm_first).train(training)
    x = torch.randn(B, N, H * D * 2)
    triangle = torch.ones(N, N, dtype=torch.bool).triu(1)
    options = {}
    if kind in ("padding", "both"):
        options["src_key_padding_mask"] = PADDED
    if kind in ("causal", "both"):
        options["mask"] = triangle
    allowed = torch.ones(B, 1, N, N, dtype=torch.bool)
    allowed &= ~PADDED[:, None, None] if "src_key_padding_mask" in options else allowed
    allowed &= ~triangle if "mask" in options else allowed
    with torch.set_grad_enabled(grad):
        expected = model(x, **options)
        with watch(model) as seen:
            out = model(x, **options)
    assert torch.equal(out, expected)  # the very bits, zeros at padding included
    assert seen.names == [f"layers.{i}.self_attn" for i in range(3)]
    for record in seen:
        if kind == "none":
            assert record.mask is None
        else:
            assert torch.equal(record.mask.expand(record.shape), allowed.expand(record.shape))
        assert not record.weights.masked_select(~allowed.expand(record.shape)).any()
        assert torch.allclose(record.weights.sum(-1), torch.ones(B, 2 * H, N), atol=1e-6)


def test_fast_path_records_what_the_plain_path_computes():
    """Weights in eval mode without gradients are those of eval mode with gradients."""
    model = encoder(dtype=torch.float64).eval()
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)
    with watch(model) as plain:
        model(x)
    with torch.no_grad(), watch(model) as fast:
        model(x)
    for a, b in zip(plain, fast, strict=True):
        assert torch.allclose(a.weights, b.weights, atol=1e-12)


class LeakyEncoder(nn.Module):
    """The mistake of a well-known course notebook: only the first layer is given the mask."""

    def __init__(self):
        super().__init__()
        self.layers = encoder(dtype=torch.float64).layers

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, src_mask=mask)
            mask = None
        return x


def test_a_mask_dropped_after_the_first_layer_shows():
    model = LeakyEncoder()
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)
    triangle = torch.ones(N, N, dtype=torch.bool).triu(1)
    with watch(model) as seen:
        model(x, triangle)
    assert [record.mask is None for record in seen] == [False, True, True]
    future = [bool(record.weights.masked_select(triangle).any()) for record in seen]
    assert future == [False, True, True]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_encoder_and_decoder(training):
    model = nn.Transformer(
        H * D * 2, 2 * H, 2, 2, dim_feedforward=17, batch_first=True, dropout=0.0
    ).train(training)
    source, target = torch.randn(B, M, H * D * 2), torch.randn(B, N, H * D * 2)
    padded = torch.arange(M) >= torch.tensor([[M], [M - 2]])
    options = {
        "tgt_mask": torch.ones(N, N, dtype=torch.bool).triu(1),
        "src_key_padding_mask": padded,
        "memory_key_padding_mask": padded,
    }
    with torch.no_grad():
        expected = model(source, target, **options)
        with watch(model) as seen:
            assert torch.equal(model(source, target, **options), expected)
    assert seen.names == [
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    ]
    for layer in (0, 1):
        own = seen[f"decoder.layers.{layer}.self_attn"]
        cross = seen[f"decoder.layers.{layer}.multihead_attn"]
        assert torch.equal(own.mask.expand(own.shape), ~options["tgt_mask"].expand(own.shape))
        assert cross.shape == (B, 2 * H, N, M)
        assert torch.equal(
            cross.mask.expand(cross.shape), ~padded[:, None, None].expand(cross.shape)
        )


# ---- manners


def test_gradients_flow_and_are_the_same():
    model = encoder(dtype=torch.float64)
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)
    model(x).square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with watch(model) as seen:
        model(x).square().sum().backward()
    assert len(seen) == 3
    assert not any(r.queries.requires_grad or r.weights.requires_grad for r in seen)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(p.grad, gradient)


def test_nothing_is_left_behind(untouched):
    model = encoder().eval()
    before = untouched(model)
    with watch(model), torch.no_grad():
        model(torch.randn(B, N, H * D * 2))
        assert untouched(model)[0] == before[0]  # not even meanwhile
    assert untouched(model) == before
    with pytest.raises(ZeroDivisionError), watch(model):
        _ = 1 / 0
    with pytest.raises(AssertionError), watch(model) as seen:
        model(torch.randn(B, N, 3))
    assert len(seen) == 0
    assert untouched(model) == before


class Stumbles(nn.Module):
    """Its first call fails inside a submodule, and it carries on."""

    def __init__(self):
        super().__init__()
        self.bad = nn.Linear(3, 3)
        self.good = Bare()

    def forward(self, *qkv):
        with pytest.raises(RuntimeError):
            self.bad(torch.randn(2, 5))
        return self.good(*qkv)


def test_names_survive_an_exception_inside():
    model = Stumbles()
    with watch(model) as seen:
        model(*tensors())
        model(*tensors())
    assert seen.names == ["good", "good#2"]


def test_memory_returns():
    model = mha()
    x = torch.randn(B, N, H * D * 2, dtype=torch.float64)

    def storages():
        gc.collect()
        alive = [t for t in gc.get_objects() if type(t) is torch.Tensor]
        strided = [t for t in alive if t.layout == torch.strided and not t.is_nested]
        return {t.untyped_storage().data_ptr() for t in strided}

    before = storages()
    with watch(model) as seen:
        model(x, x, x, need_weights=True)
        model(x, x, x, need_weights=False)
    dead = [weakref.ref(seen[0]), weakref.ref(seen[0]._queries.tensor)]
    assert storages() - before
    del seen
    assert storages() == before
    assert [ref() for ref in dead] == [None, None]


def test_intermediate_tensors_die_inside_the_block():
    """The trace holds on to nothing but what the records need."""
    dead = []

    class Hand(nn.Module):
        def forward(self, x):
            scores = x @ x.mT
            dead.append(weakref.ref(scores))
            return scores.relu()

    model = Hand()
    with watch(model) as seen:
        model(torch.randn(B, N, D))
        gc.collect()
        assert dead[0]() is None
    assert len(seen) == 0


def test_two_watchers_and_a_second_round():
    model, x = mha(), torch.randn(B, N, H * D * 2, dtype=torch.float64)
    with watch(model) as outer:
        model(x, x, x)
        with watch(model) as inner:
            model(x, x, x, need_weights=False)
    assert outer.names == ["MultiheadAttention", "MultiheadAttention#2"]
    assert inner.names == ["MultiheadAttention"]
    assert torch.allclose(outer[0].weights, inner[0].weights, atol=1e-12)
    with watch(model) as again:
        model(x, x, x)
    assert len(again) == 1
    assert len(outer) == 2


def test_other_models_are_not_recorded():
    model, other = Bare(), Bare()
    with watch(model) as seen:
        other(*tensors())
        model(*tensors())
        nn.Sequential(nn.Identity(), model)
    assert seen.names == ["Bare"]


def test_only_and_keep():
    model = encoder()
    x = torch.randn(B, N, H * D * 2)
    with watch(model, only="layers.1.*", keep="copy") as seen:
        model(x)
    assert seen.names == ["layers.1.self_attn"]
    with pytest.raises(ValueError, match="matches no module"), watch(model, only="layer.1"):
        pass
    with pytest.raises(ValueError, match="keep should be"), watch(model, keep="gpu"):
        pass


def test_a_change_in_place_is_reported_and_a_copy_survives_it():
    model = Bare()
    q, k, v = tensors()
    with watch(model) as views, watch(model, keep="copy") as copies:
        model(q, k, v)
    old = k.clone()
    k.zero_()
    with pytest.raises(RuntimeError, match='keep="copy"'):
        _ = views[0].keys
    assert torch.equal(copies[0].keys, old)


def test_no_attention_is_said_kindly():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    with watch(model) as seen:
        model(torch.randn(2, 3))
    assert len(seen) == 0
    assert "no attention was recognised in Sequential" in repr(seen)
    assert "what attnlab recognises: " in repr(seen)
    assert "another thread" not in repr(seen)


def test_lookup_by_number_and_name():
    model = encoder()
    with watch(model) as seen:
        model(torch.randn(B, N, H * D * 2))
    assert seen["layers.2.self_attn"] is seen[-1] is seen[2]
    assert len(seen[:2]) == 2
    with pytest.raises(KeyError, match=r"layers\.0\.self_attn"):
        seen["layers.0.attn"]
    assert "6 heads" in repr(seen[0])
    assert "layers.0.self_attn" in repr(seen)


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(TypeError, match=r"nn\.Module"), watch(lambda x: x):
        pass
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="TorchScript"), watch(nn.Sequential(scripted)):
        pass


def test_compiled_models_run_uncompiled_inside_the_block():
    plain = encoder(layers=2)
    compiled = torch.compile(plain, backend="eager")
    x = torch.randn(B, N, H * D * 2)
    with watch(compiled) as seen:
        out = compiled(x)
    assert seen.names == ["layers.0.self_attn", "layers.1.self_attn"]
    assert torch.allclose(out, plain(x), atol=1e-6)


@pytest.mark.parametrize("backward", [torch.Tensor.backward, torch.autograd.backward])
def test_a_checkpointed_segment_is_recorded_once(backward):
    module = mha()

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            run = torch.utils.checkpoint.checkpoint
            return run(lambda x: self.inner(x, x, x)[0], x, use_reentrant=False)

    model = Checkpointed()
    with watch(model) as seen:
        x = torch.randn(B, N, H * D * 2, dtype=torch.float64, requires_grad=True)
        backward(model(x).sum())
    assert seen.names == ["inner"]


def test_inference_mode():
    model = encoder().eval()
    with torch.inference_mode(), watch(model) as seen:
        model(torch.randn(B, N, H * D * 2))
    assert seen[2].weights.shape == (B, 2 * H, N, N)
