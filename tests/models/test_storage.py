import json
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from attnlab.catalog import card, cards
from attnlab.models import storage
from attnlab.models.tiny import TinyTransformer
from tests.test_claims import extra_inputs


@pytest.mark.parametrize("kind", ["language_model", "classifier", "encoder_decoder"])
@pytest.mark.parametrize("tie", [True, False])
def test_round_trip(make, tokens, source, tmp_path, kind, tie):
    model = make(kind, tie=tie, norm="post", positions="sinusoidal", hidden=31, dropout=0.1)
    model.save(tmp_path / "model.safetensors", extra={"vocabulary": '["é", "b"]'})
    state = torch.random.get_rng_state()
    again = TinyTransformer.load(tmp_path / "model.safetensors").eval()
    other = {"source": source} if kind == "encoder_decoder" else {}
    assert torch.equal(again(tokens, **other), model(tokens, **other))
    assert again.config == model.config
    assert again.extra == {"vocabulary": '["é", "b"]'}
    assert state is not None
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]


def test_extra_travels_on(make, tmp_path):
    model = make()
    model.extra["vocabulary"] = "abc"
    model.save(tmp_path / "a", extra={"note": "x"})
    again = TinyTransformer.load(tmp_path / "a")
    again.save(tmp_path / "b", extra={"note": "y"})
    assert TinyTransformer.load(tmp_path / "b").extra == {"vocabulary": "abc", "note": "y"}


def test_the_file_is_plain(make, tmp_path):
    """Readable without attnlab: config in the metadata, each tensor once, sinusoids not stored."""
    model = make(tie=True, positions="sinusoidal")
    model.save(tmp_path / "m")
    with safe_open(str(tmp_path / "m"), framework="pt") as file:
        assert json.loads(file.metadata()["config"]) == model.config
    tensors = load_file(tmp_path / "m")
    assert sum(t.numel() for t in tensors.values()) == sum(p.numel() for p in model.parameters())


def test_a_shared_tensor_is_stored_once_and_loaded_twice(make, tokens, tmp_path):
    def shared():
        model = make(attention=attention)
        first, second = (block.attention.heads for block in model.decoder.blocks)
        second.query.weight = first.query.weight
        return model

    def attention(dim, heads, causal):
        return TinyTransformer(3, dim=dim, heads=heads, layers=1).decoder.blocks[0].attention

    model = shared()
    model.save(tmp_path / "m")
    assert "decoder.blocks.1.attention.heads.query.weight" not in load_file(tmp_path / "m")
    built = []

    def sharing(dim, heads, causal):
        module = attention(dim, heads, causal)
        built.append(module)
        module.heads.query.weight = built[0].heads.query.weight
        return module

    again = TinyTransformer.load(tmp_path / "m", attention=sharing).eval()
    assert torch.equal(again(tokens), model(tokens))


def test_attention_given_as_code_must_be_given_again(make, tokens, tmp_path, running_mean):
    model = make(attention=running_mean)
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="attention=…"):
        TinyTransformer.load(tmp_path / "m")
    again = TinyTransformer.load(tmp_path / "m", attention=running_mean).eval()
    assert torch.equal(again(tokens), model(tokens))
    make().save(tmp_path / "named")
    with pytest.raises(ValueError, match="leave the argument attention out"):
        TinyTransformer.load(tmp_path / "named", attention=running_mean)


def test_names_per_layer_are_kept(make, tmp_path):
    model = make(attention=["full", "full"], attention_options=[{"form": "naive"}, {}])
    model.save(tmp_path / "m")
    again = TinyTransformer.load(tmp_path / "m")
    assert again.config["attention"] == ["full", "full"]
    assert again.decoder.blocks[0].attention.form == "naive"


def test_unreadable_files(make, tmp_path):
    path = tmp_path / "m"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        TinyTransformer.load(path)
    make().save(path)
    whole = path.read_bytes()
    for broken in (b"", b"hello, not a model", whole[:40], whole[:-7], whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="not a readable safetensors file"):
            TinyTransformer.load(path)


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({}, "no config"),
        ({"config": "{"}, "not JSON"),
        ({"config": "[1]"}, "not a JSON object"),
        ({"config": '{"vocab": 29, "colour": "red"}'}, "colour"),
    ],
)
def test_files_with_a_strange_config(tmp_path, metadata, sentence):
    save_file({"a": torch.zeros(2)}, tmp_path / "m", metadata=metadata)
    with pytest.raises(ValueError, match=sentence):
        TinyTransformer.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("embedding.weight"), "lacks embedding.weight"),
        (lambda t: t.update(more=torch.zeros(3)), "has no place for more"),
        (
            lambda t: t.update({"positions.weight": torch.zeros(5, 12)}),
            r"differs in shape at positions.weight \(5, 12\) for \(23, 12\)",
        ),
    ],
)
def test_files_that_do_not_fit(make, tmp_path, change, sentence):
    model = make()
    model.save(tmp_path / "m")
    tensors = load_file(tmp_path / "m")
    change(tensors)
    save_file(tensors, tmp_path / "m", metadata={"config": json.dumps(model.config)})
    with pytest.raises(ValueError, match=sentence):
        TinyTransformer.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": 10**8}, "asks for 100000000 layers, but the file holds only"),
        ({"layers": 20}, "lacks"),
        ({"dim": 10**9}, "too many for a small model"),
        ({"dim": 10_000}, "differs in shape"),
        ({"vocab": 10**7}, "differs in shape"),
        ({"max_len": 10**6, "positions": "sinusoidal"}, "has no place for positions.weight"),
        ({"hidden": 10**6}, "differs in shape"),
        ({"layers": float("nan")}, "layers should be a whole number, got nan"),
        ({"layers": None}, "layers should be a whole number, got None"),
        ({"attention": {"a": 1}}, "attention should be a catalogue name"),
        ({"attention": [["full"], "full"]}, "attention should be a catalogue name"),
        (
            {
                "attention": "synthesizer",
                "attention_options": {"variant": "random", "max_len": 10**6},
            },
            "lacks",
        ),
        ({"attention_options": {"form": [1]}}, "not one that this version"),
        ({"attention_options": 3}, "keyword arguments as a dict"),
        ({"tie": 0}, "tie should be True or False"),
    ],
)
def test_a_damaged_config_is_refused_before_it_takes_time_or_memory(
    make, tmp_path, options, sentence
):
    model, path = make(), tmp_path / "m"
    storage.save(model, path, model.config | options, {})
    began = time.perf_counter()
    with pytest.raises(ValueError, match=sentence):
        TinyTransformer.load(path)
    assert time.perf_counter() - began < 2


def test_a_config_nested_too_deeply(make, tmp_path):
    text = "[" * 100_000
    save_file({"a": torch.zeros(2)}, tmp_path / "m", metadata={"config": text})
    with pytest.raises(ValueError, match="not JSON"):
        TinyTransformer.load(tmp_path / "m")


def _refusal(path):
    try:
        TinyTransformer.load(path)
    except ValueError as error:
        return [str(error)]
    return []


def test_every_damaged_byte_of_the_header_ends_in_a_sentence(make, tmp_path):
    """Or in a model: another letter in a note does no harm."""
    model, path = make(layers=1), tmp_path / "m"
    model.save(path)
    whole = bytearray(path.read_bytes())
    size = 8 + int.from_bytes(whole[:8], "little")
    messages = []
    for place in range(0, size, 7):
        damaged = whole.copy()
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        messages += _refusal(path)
    assert all(str(path) in message for message in messages)
    assert len(messages) > size / 7 / 2


def test_whole_numbers_are_no_weights(make, tmp_path):
    model = make()
    model.save(tmp_path / "m")
    tensors = load_file(tmp_path / "m")
    tensors["embedding.weight"] = tensors["embedding.weight"].long()
    save_file(tensors, tmp_path / "m", metadata={"config": json.dumps(model.config)})
    with pytest.raises(ValueError, match=r"another kind of number at embedding.weight \(I64\)"):
        TinyTransformer.load(tmp_path / "m")


@pytest.mark.parametrize("name", [card.name for card in cards() if card.mixes])
def test_every_mechanism_is_saved_and_loaded(make, tokens, tmp_path, name):
    """The model is built without memory first, on the meta device, which each one must allow."""
    causal = card(name).causal != "never"
    model = make("language_model" if causal else "classifier", attention=name)
    model.save(tmp_path / "m")
    again = TinyTransformer.load(tmp_path / "m").eval()
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.state_dict().values(), model.state_dict().values(), strict=True)
    )
    real = torch.ones(tokens.shape, dtype=torch.bool)
    given = extra_inputs(card(name), real)
    torch.testing.assert_close(again(tokens, **given), model(tokens, **given))


@pytest.mark.parametrize("path", [None, 7, ["m"]])
def test_a_path_that_is_none(make, path):
    with pytest.raises(TypeError, match="path should be the name of a file"):
        make().save(path)
    with pytest.raises(TypeError, match="path should be the name of a file"):
        TinyTransformer.load(path)


def test_a_failed_save_keeps_the_old_file(make, tmp_path):
    model = make()
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    with pytest.raises(ValueError, match="extra holds strings"):
        model.save(tmp_path / "m", extra={"number": 3})
    with pytest.raises(ValueError, match="config"):
        model.save(tmp_path / "m", extra={"config": "mine"})
    with pytest.raises(ValueError, match="half a surrogate pair"):
        model.save(tmp_path / "m", extra={"note": "\ud800"})
    with pytest.raises(TypeError, match="extra should be a dict of strings, got a list"):
        model.save(tmp_path / "m", extra=["a"])
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.save(tmp_path)
    model.config["attention_options"] = {"odd": torch.zeros(1)}
    with pytest.raises(ValueError, match="JSON"):
        model.save(tmp_path / "m")
    with pytest.raises(FileNotFoundError, match="folder"):
        model.save(tmp_path / "nowhere" / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["m"]


def test_a_write_that_breaks_off_keeps_the_old_file(make, tmp_path, monkeypatch):
    model = make()
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()

    def half(tensors, path, metadata):
        with open(path, "wb") as file:
            file.write(before[:50])
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.torch.save_file", half)
    with pytest.raises(OSError, match="disk full"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["m"]


def test_a_mechanism_that_this_version_lacks_is_named_with_the_file(make, tmp_path):
    model, path = make(), tmp_path / "model.safetensors"
    storage.save(model, path, model.config | {"attention": "longfomer"}, {})
    with pytest.raises(ValueError, match=r"model\.safetensors .*there is no mechanism 'longfomer'"):
        TinyTransformer.load(path)


LOADED = """
import sys
from attnlab.pretrained import load
load("documentation")
print("torch._dynamo" in sys.modules)
"""


def test_loading_a_shipped_model_does_not_import_the_compiler():
    """Which takes longer than all else, and which numbers on the meta device bring."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
