import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from attnlab.models.tiny import TinyTransformer


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


def test_a_failed_save_keeps_the_old_file(make, tmp_path):
    model = make()
    model.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    with pytest.raises(ValueError, match="extra holds strings"):
        model.save(tmp_path / "m", extra={"number": 3})
    with pytest.raises(ValueError, match="config"):
        model.save(tmp_path / "m", extra={"config": "mine"})
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


def test_a_mechanism_that_this_version_lacks_is_told_with_the_file(make, tmp_path):
    from attnlab.models import storage

    model, path = make(), tmp_path / "model.safetensors"
    storage.save(model, path, model.config | {"attention": "longfomer"}, {})
    with pytest.raises(ValueError, match=r"model\.safetensors .*there is no mechanism 'longfomer'"):
        TinyTransformer.load(path)
