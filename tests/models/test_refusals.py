import math

import numpy as np
import pytest
import torch
from torch import nn

import attnlab
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models.tiny import DecoderState, TinyTransformer


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dim": 12, "heads": 5}, r"heads should divide dim.*nearest number that fits is heads=4"),
        ({"dim": 0}, "dim should be at least 1, got 0"),
        ({"hidden": -3}, "hidden should be at least 1, got -3"),
        ({"attention": "ful"}, "did you mean 'full'"),
        ({"kind": "clasifier"}, "did you mean 'classifier'"),
        ({"norm": "prenorm"}, "did you mean 'pre'"),
        ({"positions": "sinusoid"}, "did you mean 'sinusoidal'"),
        ({"positions": "xyz"}, "known: alibi, complex, cope, contextual_positions, kerple"),
        ({"dropout": 1.5}, "dropout is a probability"),
        ({"vocab": None}, "needs vocab"),
        ({"vocab": 0}, "vocab should be at least 1"),
        ({"features": 3}, "takes no features"),
        (
            {"kind": "classifier", "classes": 3, "features": 5, "vocab": None, "embedding_rank": 2},
            "embedding_rank factorizes the table of tokens",
        ),
        ({"positions": "complex", "embedding_rank": 2}, "leave one of the two out"),
        ({"embedding_rank": 0}, "embedding_rank .* at least 1"),
        ({"classes": 3}, "classes is for kind='classifier'"),
        ({"kind": "classifier"}, "needs the number of classes"),
        ({"kind": "classifier", "classes": 3, "features": 5}, "either tokens"),
        ({"kind": "classifier", "classes": 3, "vocab": None}, "either tokens"),
        ({"kind": "classifier", "classes": 0}, "classes should be at least 1"),
        ({"attention": ["full"] * 3}, "one entry per layer: 4, got 3"),
        ({"attention_options": {"causal": True}}, "cannot set 'causal'"),
        ({"attention_options": [{}, {}, {}, {"dim": 3}]}, "cannot set 'dim'"),
        ({"dropout": math.nan}, "dropout is a probability"),
        ({"kind": ["language_model"]}, r"no kind \['language_model'\]"),
        ({"layers": 10**8}, "layers should be at most 1000, got 100000000"),
        ({"dim": 10**9, "heads": 7}, "too many for a small model: dim=1000000000"),
        ({"vocab": 10**12}, "too many for a small model"),
        ({"max_len": 10**12, "positions": "sinusoidal"}, "too many for a small model"),
        ({"attention_options": [{}]}, "one entry per layer: 4, got 1"),
    ],
)
def test_building(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        TinyTransformer(**({"vocab": 29} | options))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": 1.0}, "layers should be a whole number, got 1.0"),
        ({"dim": math.nan}, "dim should be a whole number, got nan"),
        ({"max_len": True}, "max_len should be a whole number, got True"),
        ({"vocab": "29"}, "vocab should be a whole number, got '29'"),
        ({"dropout": "0.1"}, "dropout should be a number, got '0.1'"),
        ({"dropout": None}, "dropout should be a number, got None"),
        ({"dropout": False}, "dropout should be a number, got False"),
        ({"tie": 1}, "tie should be True or False, got 1"),
        ({"checkpoint": "no"}, "checkpoint should be True or False, got 'no'"),
        ({"attention_options": {1: 2}}, "keyword arguments as a dict"),
        (
            {"atention": "full"},
            "TinyTransformer has no option 'atention'; did you mean 'attention'",
        ),
    ],
)
def test_building_from_the_wrong_type(options, sentence):
    with pytest.raises(TypeError, match=sentence):
        TinyTransformer(**({"vocab": 29} | options))


def test_integers_of_numpy_are_welcome(tmp_path):
    sizes = {"vocab": np.int64(29), "dim": np.int32(12), "heads": np.uint8(2), "layers": 1}
    model = TinyTransformer(**sizes, dropout=np.float32(0.5))
    assert {type(model.config[name]) for name in sizes} == {int}
    model.save(tmp_path / "m")
    assert TinyTransformer.load(tmp_path / "m").config == model.config


def test_an_unknown_option_of_the_mechanism_is_named():
    with pytest.raises(TypeError, match="did you mean 'form'"):
        TinyTransformer(29, attention_options={"from": "naive"})


def test_attention_that_is_not_attention():
    with pytest.raises(TypeError, match="catalogue name, a module or a function"):
        TinyTransformer(29, attention=3)
    with pytest.raises(TypeError, match=r"should return an nn\.Module, got int"):
        TinyTransformer(29, attention=lambda dim, heads, causal: 3)
    with pytest.raises(TypeError, match=r"function\(dim, heads, causal=…\).* does not allow"):
        TinyTransformer(29, attention=lambda: 3)
    with pytest.raises(TypeError, match=r"module\(x, padding\), which the forward of Linear"):
        TinyTransformer(29, attention=lambda dim, heads, causal: nn.Linear(dim, dim))
    with pytest.raises(ValueError, match="already has its own"):
        TinyTransformer(29, attention=FullAttention, attention_options={"form": "naive"})


def test_a_module_is_never_shared_silently():
    module = FullAttention(12, 2, causal=True)
    sizes = {"dim": 12, "heads": 2}
    for attention in (module, [module] * 4):
        with pytest.raises(ValueError, match="share its weights"):
            TinyTransformer(29, attention=attention, **sizes)
    with pytest.raises(ValueError, match="again for the decoder"):
        TinyTransformer(29, attention=module, layers=1, kind="encoder_decoder", **sizes)
    TinyTransformer(29, attention=module, layers=1, **sizes)


def test_mechanisms_refuse_the_direction_they_cannot_take(monkeypatch, running_mean):
    with pytest.raises(ValueError, match="always causal"):
        TinyTransformer(29, kind="classifier", classes=3, attention=running_mean)

    real = attnlab.build

    def never(name, causal=False, **options):
        if name != "full":
            return real(name, **options)
        if causal:
            raise ValueError("it mixes the whole sequence at once")
        return nn.Identity()

    monkeypatch.setattr("attnlab.catalog.build", never)
    with pytest.raises(ValueError, match=r"kind='language_model'.*causal=True.*at once"):
        TinyTransformer(29, positions="none")


LONG = torch.long


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (torch.zeros(3, 0, dtype=LONG), r"empty \(n = 0\)"),
        (torch.zeros(3, 24, dtype=LONG), "24 positions, more than the model's max_len=23"),
        (torch.full((3, 5), 29), "0 … 28, .* 29 does not; vocab is 29"),
        (torch.full((3, 5), -100), "-100 does not"),
        (torch.zeros(3, 5), "whole numbers"),
        (torch.zeros(3, 5, dtype=torch.bool), "whole numbers"),
        (torch.zeros(5, dtype=LONG), r"tokens\[None\]"),
        (torch.zeros(3, 5, dtype=LONG, device="meta"), "on meta but the model is on cpu"),
    ],
)
def test_tokens(make, tokens, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()(tokens)


@pytest.mark.parametrize("shape", [(3, 11), (3, 11, 6)])
def test_vectors_of_another_shape_or_dtype(make, shape):
    model = make("classifier", features=5, classes=7)
    with pytest.raises(ValueError, match="features=5"):
        model(torch.zeros(shape))
    with pytest.raises(ValueError, match="int64"):
        model(torch.zeros(3, 11, 5, dtype=LONG))


@pytest.mark.parametrize("padding", [torch.ones(3, 11), torch.ones(3, 7, dtype=torch.bool)])
def test_padding_of_another_shape_or_dtype(make, tokens, padding):
    with pytest.raises(ValueError, match="padding should be bool"):
        make()(tokens, padding)


def test_source_and_memory(make, tokens, source):
    with pytest.raises(ValueError, match="call model"):
        make("encoder_decoder")(tokens)
    for kind in ("language_model", "classifier"):
        with pytest.raises(ValueError, match="no cross-attention"):
            make(kind)(tokens, source=source)
    with pytest.raises(ValueError, match="memory is missing"):
        make("encoder_decoder").decode(tokens)
    with pytest.raises(ValueError, match="memory is missing"):
        make("encoder_decoder").step(tokens[:, :1])
    with pytest.raises(ValueError, match="memory is given"):
        make().decode(tokens, memory=torch.zeros(3, 5, 12))
    with pytest.raises(ValueError, match=r"\(3, m, 12\), got \(3, 5, 11\)"):
        make("encoder_decoder").decode(tokens, memory=torch.zeros(3, 5, 11))
    with pytest.raises(TypeError, match="memory should be a tensor"):
        make("encoder_decoder").decode(tokens, memory=[1])
    with pytest.raises(ValueError, match=r"memory_padding should be bool of shape .*\(3, 5\)"):
        make("encoder_decoder").decode(
            tokens, memory=torch.zeros(3, 5, 12), memory_padding=torch.ones(3, 7).bool()
        )
    with pytest.raises(ValueError, match="needs the memory"):
        make().step(tokens, memory_padding=torch.ones(3, 5).bool())


def test_parts_that_a_kind_lacks(make, tokens, running_mean):
    with pytest.raises(ValueError, match="no encoder"):
        make().encode(tokens)
    with pytest.raises(ValueError, match="no decoder"):
        make("classifier").decode(tokens)
    with pytest.raises(ValueError, match="step"):
        make(attention=running_mean).step(tokens[:, :1])


def test_what_is_no_tensor_or_elsewhere(make, tokens):
    model = make()
    with pytest.raises(TypeError, match="the input should be a tensor, got a list"):
        model([[1, 2]])
    with pytest.raises(TypeError, match="padding should be a tensor, got a ndarray"):
        model(tokens, torch.ones(tokens.shape).bool().numpy())
    with pytest.raises(ValueError, match="padding is on meta but the model is on cpu"):
        model(tokens, torch.ones(tokens.shape, device="meta").bool())
    nested = torch.nested.nested_tensor([tokens[0], tokens[1, :5]], layout=torch.jagged)
    for strange in (tokens.to_sparse(), nested):
        with pytest.raises(TypeError, match="the input should be an ordinary dense tensor"):
            model(strange)
    with pytest.raises(TypeError, match="keyword arguments as a dict"):
        make(attention_options="naive")


def test_vectors_that_are_no_stream(make):
    model = make()
    with pytest.raises(TypeError, match="x should be a tensor"):
        model.logits(None)
    for x in (torch.zeros(3, 5), torch.zeros(3, 12, dtype=LONG)):
        with pytest.raises(ValueError, match="float vectors of width dim=12"):
            model.logits(x)


def test_options_of_one_layer_only():
    model = TinyTransformer(
        29, dim=8, layers=2, heads=2, attention_options=[None, {"form": "naive"}]
    )
    assert [block.attention.form for block in model.decoder.blocks] == ["fused", "naive"]
    assert model.config["attention_options"] == [{}, {"form": "naive"}]


def test_state_of_another_model(make, tokens):
    model, deeper = make(layers=2), make(layers=3)
    _, state = model.step(tokens[:, :3])
    with pytest.raises(ValueError, match="state holds 2 layers, but this model has 3"):
        deeper.step(tokens[:, 3:4], state)
    for foreign in ("state", (1, 2, 3), (0, [None, None]), []):
        with pytest.raises(TypeError, match=r"what this model's own step\(\) returned"):
            model.step(tokens[:, 3:4], foreign)
    with pytest.raises(TypeError, match="a KeyValueCache or None, got 3"):
        model.step(tokens[:, 3:4], DecoderState(3, [3, 3]))
    fewer = make(layers=2, attention="multi_query")
    with pytest.raises(ValueError, match=r"keys of .* heads of width .* another layer's state"):
        fewer.step(tokens[:, 3:4], state)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"feed": "mpl"}, "no feed 'mpl'; did you mean 'mlp'"),
        ({"feed": "pre_norm"}, "no feed 'pre_norm'"),
        ({"join": "postnorm"}, "no join 'postnorm'; did you mean 'post_norm'"),
        ({"depth": 3}, "no depth 3"),
        ({"norm": "post", "join": "pre_norm"}, "norm is an earlier name of join; give join alone"),
        ({"feed_options": {"chunk": 2}}, "mlp has no option 'chunk'; did you mean 'chunks'"),
        ({"feed_options": 3}, "feed_options are keyword arguments as a dict"),
        ({"join_options": {"dropout": 0.5}}, "join_options cannot set 'dropout': the model itself"),
        ({"feed_options": {"dim": 3}}, "feed_options cannot set 'dim'"),
        ({"hidden": 8, "feed_options": {"hidden": 9}}, "feed_options cannot set 'hidden'"),
        ({"depth": "checkpointed", "depth_options": {"every": 2}}, "has no option 'every'"),
    ],
)
def test_parts_that_cannot_be_named(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        TinyTransformer(29, dim=8, heads=2, layers=2, **options)


def test_names_of_parts_and_earlier_options_make_the_same_model():
    small = {"dim": 8, "heads": 2, "layers": 2}
    for now, earlier in (
        ({"join": "post"}, {"norm": "post"}),
        ({"depth": "reversible"}, {"reversible": True}),
        ({"feed_options": {"chunks": 3}}, {"feed_forward_chunks": 3}),
        ({"depth": "checkpointed", "feed": "ffn"}, {"checkpoint": True, "norm": "pre"}),
    ):
        tokens, found = torch.arange(7)[None], []
        for options in (now, earlier):
            torch.manual_seed(1)
            model = TinyTransformer(29, **small, **options)
            out = model(tokens)
            found.append((out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))))
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_old_paths_of_layers_answer_with_the_new_ones():
    with pytest.raises(ImportError, match=r"FeedForward is now attnlab.architecture.feed.mlp.MLP"):
        from attnlab.models.layers import FeedForward  # noqa: F401
    with pytest.raises(ImportError, match=r"is now attnlab.architecture.depth.reversible"):
        import attnlab.models.reversible  # noqa: F401
