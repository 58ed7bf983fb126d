"""What a record keeps: tensors that change, copies and pickles."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.lens.watch import watch
from attnlab.mechanisms.dense import flash, full

B, H, N, D = 2, 3, 5, 4


class Ring(nn.Module):
    """Decodes with a cache of fixed length that is overwritten in turn."""

    def __init__(self, written: bool):
        super().__init__()
        self.written = written

    def forward(self, xs):
        keys = torch.zeros(B, H, 3, D)
        outs = []
        for step, x in enumerate(xs):
            keys[:, :, step % 3] = x
            q = x[:, :, None]
            if self.written:
                outs.append((q @ keys.mT * 0.5).softmax(-1) @ keys)
            else:
                outs.append(F.scaled_dot_product_attention(q, keys, keys))
        return outs


@pytest.mark.parametrize("written", [True, False], ids=["written out", "fused"])
@pytest.mark.parametrize("keep", [None, "copy", "cpu"])
def test_an_overwritten_cache_under_inference_mode(written, keep):
    model, xs = Ring(written), torch.randn(7, B, H, D)
    with watch(model, keep="copy") as expected:
        model(xs)
    with torch.inference_mode(), watch(model, keep=keep) as seen:
        model(xs)
    assert len(seen) == len(expected) == 7
    for ours, theirs in zip(seen, expected, strict=True):
        assert torch.equal(ours.keys, theirs.keys)
        assert torch.equal(ours.values, theirs.values)
        assert torch.allclose(ours.weights, theirs.weights, atol=1e-6)
        assert ours.scale == theirs.scale


def test_scaled_queries_that_are_overwritten_under_inference_mode():
    class Model(nn.Module):
        def forward(self, x):
            q = x * 0.5
            q.view(-1).zero_()
            return (q @ x.mT).softmax(-1) @ x

    x, model = torch.randn(B, N, D), Model()
    with torch.inference_mode(), watch(model) as seen:
        model(x)
    assert not (seen[0].queries * seen[0].scale).any()


def test_a_change_before_the_values_are_mixed_is_reported_even_with_copies():
    class Model(nn.Module):
        def forward(self, q, k, v):
            weights = (q @ k.mT).softmax(-1)
            k.zero_()
            return weights @ v

    with torch.no_grad():
        model = Model()
        with watch(model, keep="copy") as seen:
            model(*torch.randn(3, B, N, D))
    with pytest.raises(RuntimeError, match="changed in place"):
        _ = seen[0].keys


def test_an_expanded_mask_stays_expanded_in_a_copy():
    mask = torch.rand(1, 1, 101, 101).gt(0.5).expand(7, 11, 101, 101)
    x = torch.randn(7, 11, 101, 2)

    class Model(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model = Model()
    with watch(model, keep="copy") as seen:
        model(x)
    held = seen[0]._history.masks[0][0].tensor
    assert held.untyped_storage().nbytes() == 101 * 101
    assert held.data_ptr() != mask.data_ptr()


def pickled(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, pickled], ids=lambda f: f.__name__)
@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize(
    ("layer", "form"),
    [(full.FullAttention, "naive"), (full.FullAttention, "fused"), (flash.FlashAttention, "tiled")],
    ids=["naive", "fused", "tiled"],
)
def test_copies_and_pickles_of_records(again, inference, layer, form):
    model = nn.Sequential(layer(H * D, H, form=form), nn.ReLU())
    x = torch.randn(B, N, H * D)
    x += 1  # a count of changes that is not 0
    with torch.inference_mode(inference), watch(model) as seen:
        model(x)
    twice = again(seen)
    assert twice.names == seen.names
    for name in ("queries", "keys", "values", "weights"):
        assert torch.equal(getattr(twice[0], name), getattr(seen[0], name))
    assert repr(twice) == repr(seen)


def test_a_copy_outlives_a_change_and_a_changed_record_is_not_copied():
    class Model(nn.Module):
        def forward(self, q, k, v):
            k += 1
            return F.scaled_dot_product_attention(q, k, v)

    q, k, v = torch.randn(3, B, H, N, D)
    model = Model()
    with watch(model) as seen:
        model(q, k, v)
    kept, old = copy.deepcopy(seen[0]), k.clone()
    k.zero_()
    assert torch.equal(kept.keys, old)
    with pytest.raises(RuntimeError, match="changed in place"):
        copy.deepcopy(seen[0])
    with pytest.raises(RuntimeError, match="changed in place"):
        pickle.dumps(seen[0])


def test_a_pattern_survives_a_pickle():
    model = flash.FlashAttention(H * D, H, causal=True)
    with watch(model) as seen:
        model(torch.randn(B, N, H * D))
    assert seen[0]._history.pattern is not None
    assert torch.equal(pickled(seen[0]).mask, seen[0].mask)


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(8, 2), full.FullAttention(8, 2)])
def test_a_recording_is_freed_with_its_last_reference(layer):
    """And not at the next run of the garbage collector, which knows nothing of a GPU's memory."""
    x = torch.randn(B, N, 8)
    gc.disable()
    try:
        with watch(layer) as seen:
            layer(x, x, x) if isinstance(layer, nn.MultiheadAttention) else layer(x)
        queries = weakref.ref(seen[0]._queries)
        assert queries() is not None
        del seen
        assert queries() is None
    finally:
        gc.enable()
