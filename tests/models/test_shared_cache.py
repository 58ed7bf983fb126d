"""Layers that share keys and values, and positions by layer."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.compression.quantized_cache import quantized_cache
from attnlab.core.patterns import causal
from attnlab.measure.cache import kept
from attnlab.mechanisms.dense.multi_query import naive
from attnlab.models.inputs import Reading
from attnlab.models.shared_cache import SharedCacheAttention
from attnlab.models.tiny import TinyTransformer

VOCAB, N = 23, 13
WINDOW = {"sinks": 0, "window": 4}
CLA: dict[str, Any] = {"cache_of": [0, 0, 2, 2]}
YOCO: dict[str, Any] = {
    "cache_of": [0, 1, 2, 2],
    "attention": ["streaming", "streaming", "full", "full"],
    "attention_options": [WINDOW, WINDOW, {}, {}],
}
STACKS: dict[str, dict[str, Any]] = {
    "pairs": {**CLA, "positions": "rope"},
    "one cache for all, biases": {"cache_of": [0, 0, 0, 0], "positions": "alibi"},
    "groups": {**CLA, "attention": "gqa", "attention_options": {"kv_heads": 2}},
    "window and one cache": {**YOCO, "positions": "rope"},
    "gates": {**CLA, "attention": "gated_attention", "positions": "rope"},
    "norms": {**CLA, "attention": "qk_norm", "positions": "rope"},
    "norms of all heads, by distance": {
        **CLA,
        "attention": "qk_norm",
        "attention_options": {"norm": "whole"},
        "positions": "alibi",
    },
    "norms after the rotation": {
        **CLA,
        "attention": "qk_norm",
        "attention_options": {"norm": "after_rotation"},
        "positions": "rope",
    },
    "capped scores": {**CLA, "attention": "soft_cap", "attention_options": {"cap": 1.0}},
    "sinks": {**CLA, "attention": "sink", "attention_options": {"kv_heads": 1}},
    "a sink in the upper layer alone": {
        **CLA,
        "attention": ["full", "sink", "full", "sink"],
        "positions": "rope",
    },
    "two bases": {
        "positions": "rope",
        "position_options": [{"base": 1e4}, {"base": 1e4}, {"base": 1e4}, {"base": 1e6}],
        "attention": [*["streaming"] * 3, "full"],
        "attention_options": [*[WINDOW] * 3, {}],
    },
    "chunks and a layer without positions": {
        "positions": ["rope", "rope", "rope", "none"],
        "attention": [*["image_transformer"] * 3, "full"],
        "attention_options": [*[{"block": 5, "memory": 0}] * 3, {}],
    },
}


def made(**options: Any) -> TinyTransformer:
    torch.manual_seed(3)
    sizes = {"dim": 12, "layers": 4, "heads": 2, **options}
    return TinyTransformer(VOCAB, **sizes).double().eval()


def tokens(b: int = 3, n: int = N) -> Tensor:
    return torch.randint(VOCAB, (b, n), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("piece", [1, 5])
def test_decoding_is_the_whole_sequence(name: str, piece: int) -> None:
    model, read = made(**STACKS[name]), tokens()
    whole, state = model(read), None
    for end in range(piece, N + piece, piece):
        logits, state = model.step(read[:, end - piece : end], state)
        torch.testing.assert_close(logits, whole[:, min(end, N) - 1])


@pytest.mark.parametrize("name", STACKS)
def test_padding_changes_nothing_for_real_tokens(name: str) -> None:
    model, read = made(**STACKS[name]), tokens()
    padding = torch.arange(N) < torch.tensor([[N], [8], [1]])
    found = model(read, padding)
    for row, n in enumerate((N, 8, 1)):
        torch.testing.assert_close(found[row, :n], model(read[row : row + 1, :n])[0])


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_saved_and_built_again(name: str, tmp_path: Any) -> None:
    model = made(**STACKS[name]).float()
    model.save(tmp_path / "model.safetensors")
    again = TinyTransformer.load(tmp_path / "model.safetensors").eval()
    assert again.config == model.config
    torch.testing.assert_close(again(tokens()), model(tokens()))


def test_a_layer_attends_to_keys_and_values_of_another() -> None:
    """By hand: the second layer's queries, with the keys and values of the first."""
    model = made(layers=2, cache_of=[0, 0])
    x = model._embedded(Reading.of(model, tokens()))
    first, second = model.decoder.blocks  # type: ignore[union-attr]
    read = first.attention_residual.norm(x)
    heads = first.attention.heads
    k, v = (heads.split(linear(read), 6) for linear in (heads.key, heads.value))
    x = first(x, caches={})
    q = heads.split(second.attention.heads.query(second.attention_residual.norm(x)), 6)
    attended = second.attention.heads.merge(naive(q, k, v, mask=causal()))
    x = x + attended
    x = x + second.feed_forward(second.feed_forward_residual.norm(x))
    torch.testing.assert_close(model._scores(model.decoder.norm(x)), model(tokens()))  # type: ignore[union-attr]


def test_its_own_cache_in_each_layer_is_the_usual_model() -> None:
    usual, own = made(positions="rope"), made(positions="rope", cache_of=[0, 1, 2, 3])
    torch.testing.assert_close(own(tokens()), usual(tokens()), rtol=0, atol=0)
    assert not any(isinstance(part, SharedCacheAttention) for part in own.modules())


def test_equal_layers_over_one_cache_are_the_usual_model() -> None:
    """If the lower layer adds nothing to the stream, both layers read the same vectors; with the
    same matrices a shared cache is then what the upper layer would have made itself."""
    usual, shared = (
        made(layers=2, positions="rope"),
        made(layers=2, positions="rope", cache_of=[0, 0]),
    )
    ours, theirs = (model.decoder.blocks for model in (shared, usual))  # type: ignore[union-attr]
    for blocks in (ours, theirs):
        blocks[0].attention.heads.output.weight.data.zero_()
        blocks[0].feed_forward.contract.weight.data.zero_()
        blocks[0].feed_forward.contract.bias.data.zero_()
    theirs[1].attention.heads.key.weight.data = theirs[0].attention.heads.key.weight.data
    theirs[1].attention.heads.value.weight.data = theirs[0].attention.heads.value.weight.data
    weights = usual.state_dict()
    renamed = {
        name.replace(".attention.", ".attention.attention."): weights[name] for name in weights
    }
    missing = shared.load_state_dict(renamed, strict=False).missing_keys
    assert not missing
    torch.testing.assert_close(shared(tokens()), usual(tokens()))


def test_gradients_reach_keys_and_values_from_both_layers() -> None:
    model = made(**CLA)
    model(tokens()).square().mean().backward()
    first, second = model.decoder.blocks[0].attention, model.decoder.blocks[1].attention  # type: ignore[union-attr]
    assert first.heads.key.weight.grad.abs().sum() > 0
    names = [name for name, _ in second.named_parameters()]
    assert names == ["attention.heads.query.weight", "attention.heads.output.weight"]


@pytest.mark.parametrize("name", ["gated_attention", "qk_norm", "sink", "soft_cap"])
def test_what_else_a_layer_has_stays_its_own(name: str) -> None:
    """All parameters learn, and those of keys and values alone are fewer."""
    shared, usual = (made(attention=name, **given) for given in (CLA, {}))
    shared(tokens()).square().mean().backward()
    for parameter in shared.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    theirs = {name for name, _ in usual.named_parameters()}
    ours = {
        name.replace("attention.attention.", "attention.") for name, _ in shared.named_parameters()
    }
    gone = {name.split("attention.")[1] for name in theirs - ours}
    norms = {"heads.key_norm.weight"} if name == "qk_norm" else set()
    assert gone == {"heads.key.weight", "heads.value.weight", *norms}


@pytest.mark.parametrize("name", STACKS)
def test_nothing_leaks_from_the_future(name: str) -> None:
    model, read = made(**STACKS[name]), tokens()
    other = read.clone()
    other[:, 7:] = (other[:, 7:] + 1) % VOCAB
    torch.testing.assert_close(model(read)[:, :7], model(other)[:, :7])


def test_positions_by_layer_differ_from_one_scheme_for_all() -> None:
    one = made(positions="rope")
    two = made(**{k: v for k, v in STACKS["two bases"].items() if k.startswith("position")})
    schemes = [block.attention.heads.positions for block in two.decoder.blocks]  # type: ignore[union-attr]
    assert schemes[0] is schemes[2] is not schemes[3]
    assert not torch.allclose(one(tokens()), two(tokens()))
    same = made(positions=["rope"] * 4)
    torch.testing.assert_close(same(tokens()), one(tokens()), rtol=0, atol=0)


def test_what_is_kept_is_counted_by_layer() -> None:
    found = kept(made(**YOCO, positions="rope"), 1000)
    numbers = [layer.bytes / 2 for layer in found.layers]
    window = 3 * 2 * 12 + 3 * 8 / 2  # keys and values, and where they stand, in int64
    assert numbers == [window, window, 1000 * 2 * 12, 0]
    assert [layer.kind for layer in found.layers][2:] == ["full", "full with the cache of layer 2"]
    pairs = kept(made(**CLA), 1000)
    assert pairs.bytes * 2 == kept(made(), 1000).bytes


def test_watching_sees_the_keys_of_the_other_layer() -> None:
    model = made(**CLA)
    with attnlab.watch(model) as seen:
        model(tokens())
    records = list(seen)
    assert len(records) == 4
    torch.testing.assert_close(records[1].keys, records[0].keys)
    assert not torch.allclose(records[2].keys, records[0].keys)
    torch.testing.assert_close(records[1].weights.sum(-1), torch.ones(3, 2, N).double())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache_of": [0, 0]}, "it needs 4 numbers, got 2"),
        ({"cache_of": [0, 2, 2, 2]}, "layer 1 can attend to the keys and values of layers 0 to 1"),
        ({"cache_of": [0, 0, 1, 3]}, "the cache of layer 1, which keeps none"),
        ({"cache_of": 2}, "cache_of is a list of one number per layer"),
        ({"cache_of": [0, 0, 2, 2], "depth": "shared"}, "depth='plain', got depth='shared'"),
        ({"cache_of": [0, 0, 2, 2], "checkpoint": True}, "needs keys and values of another"),
        (
            {"cache_of": [0, 0, 2, 2], "attention": "mla"},
            "attention='mla' does not make its weights",
        ),
        ({"cache_of": [0, 0, 2, 2], "attention": "differential"}, "take 'full', 'multi_query'"),
        (
            {"cache_of": [0, 0, 2, 2], "attention": ["full", "qk_norm", "full", "full"]},
            "keys should be made alike, got FullAttention and QKNormAttention",
        ),
        (
            {"cache_of": [0, 0, 2, 2], "attention": ["full", "gqa", "full", "full"]},
            "as many key/value heads, got 2 and 1",
        ),
        (
            {"cache_of": [0, 0, 2, 2], "positions": ["rope", "none", "rope", "rope"]},
            "keys are turned once, so their positions should be the same",
        ),
        ({"positions": ["rope", "none"]}, "positions given as a list needs one entry per layer: 4"),
        ({"positions": ["rope", "learned", "rope", "rope"]}, "stands at the embedding"),
        ({"positions": ["rope", "ropes", "rope", "rope"]}, "ropes"),
        ({"positions": "rope", "position_options": [{}, {}]}, "one entry per layer: 4, got 2"),
        ({"positions": "rope", "position_options": [3, {}, {}, {}]}, "are keyword arguments"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        made(**options)


def test_calls_that_cannot_be_are_refused() -> None:
    model = made(**CLA)
    layer = model.decoder.blocks[1].attention  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="call the model, not this layer alone"):
        layer(torch.zeros(1, 2, 12).double())
    model.checkpoint = True
    with pytest.raises(ValueError, match="these layers share keys and values"):
        model(tokens())
    with pytest.raises(ValueError, match="share a cache"):
        quantized_cache(made(**CLA))
