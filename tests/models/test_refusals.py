import pytest
import torch
from torch import nn

from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models.tiny import TinyTransformer


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dim": 12, "heads": 5}, r"heads must divide dim.*nearest number that fits is heads=4"),
        ({"dim": 0}, "dim must be a whole number"),
        ({"layers": 1.0}, "layers must be a whole number"),
        ({"max_len": True}, "max_len must be a whole number"),
        ({"hidden": -3}, "hidden must be a whole number"),
        ({"attention": "ful"}, "did you mean 'full'"),
        ({"kind": "clasifier"}, "did you mean 'classifier'"),
        ({"norm": "prenorm"}, "did you mean 'pre'"),
        ({"positions": "sinusoid"}, "did you mean 'sinusoidal'"),
        ({"positions": "xyz"}, "known: learned, sinusoidal, none"),
        ({"dropout": 1.5}, "dropout is a probability"),
        ({"vocab": None}, "needs vocab"),
        ({"vocab": 0}, "vocab must be a whole number"),
        ({"features": 3}, "takes no features"),
        ({"classes": 3}, "classes is for kind='classifier'"),
        ({"kind": "classifier"}, "needs the number of classes"),
        ({"kind": "classifier", "classes": 3, "features": 5}, "either tokens"),
        ({"kind": "classifier", "classes": 3, "vocab": None}, "either tokens"),
        ({"kind": "classifier", "classes": 0}, "classes must be a whole number"),
        ({"attention": ["full"] * 3}, "one entry per layer: 4; got 3"),
        ({"attention_options": {"causal": True}}, "cannot say 'causal'"),
        ({"attention_options": [{}, {}, {}, {"dim": 3}]}, "cannot say 'dim'"),
        ({"dropout": "0.1"}, "dropout is a probability"),
        ({"attention_options": [{}]}, "one entry per layer: 4; got 1"),
    ],
)
def test_building(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        TinyTransformer(**({"vocab": 29} | options))


def test_an_unknown_option_of_the_mechanism_is_named():
    with pytest.raises(TypeError, match="did you mean 'form'"):
        TinyTransformer(29, attention_options={"from": "naive"})


def test_attention_that_is_not_attention():
    with pytest.raises(TypeError, match="catalogue name, a module or a function"):
        TinyTransformer(29, attention=3)
    with pytest.raises(TypeError, match=r"must return an nn\.Module; got int"):
        TinyTransformer(29, attention=lambda dim, heads, causal: 3)
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

    def never(name, *, dim, heads, causal):
        if causal:
            raise ValueError("it mixes the whole sequence at once")
        return nn.Identity()

    monkeypatch.setattr("attnlab.catalog.build", never)
    with pytest.raises(ValueError, match=r"kind='language_model'.*causal=True.*at once"):
        TinyTransformer(29)


LONG = torch.long


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (torch.zeros(3, 0, dtype=LONG), r"empty \(n = 0\)"),
        (torch.zeros(3, 24, dtype=LONG), "24 positions, more than the model's max_len=23"),
        (torch.full((3, 5), 29), r"0 … 28 \(vocab=29\); got 29"),
        (torch.full((3, 5), -100), "got -100"),
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
    with pytest.raises(ValueError, match="padding must be bool"):
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


def test_parts_that_a_kind_lacks(make, tokens, running_mean):
    with pytest.raises(ValueError, match="no encoder"):
        make().encode(tokens)
    with pytest.raises(ValueError, match="no decoder"):
        make("classifier").decode(tokens)
    with pytest.raises(ValueError, match="step"):
        make(attention=running_mean).step(tokens[:, :1])


def test_what_is_no_tensor_or_elsewhere(make, tokens):
    model = make()
    with pytest.raises(TypeError, match="the input must be a tensor; got a list"):
        model([[1, 2]])
    with pytest.raises(TypeError, match="padding must be a tensor; got a ndarray"):
        model(tokens, torch.ones(tokens.shape).bool().numpy())
    with pytest.raises(ValueError, match="padding is on meta but the model is on cpu"):
        model(tokens, torch.ones(tokens.shape, device="meta").bool())
    with pytest.raises(TypeError, match="keyword arguments as a dict"):
        make(attention_options="naive")


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
    fewer = make(layers=2, attention="multi_query")
    with pytest.raises(ValueError, match=r"keys of .* heads of width .* another layer's state"):
        fewer.step(tokens[:, 3:4], state)
