"""CacheView: its bytes are those that measure.cache counts, and its sentences say what they are."""

import re
from typing import Any

import pytest
import traitlets
from attnlab_widgets.cache_view import SCOPES, CacheView, scoped
from attnlab_widgets.cache_view.bills import Kind, alternatives, presets
from attnlab_widgets.cache_view.counting import model, shape
from attnlab_widgets.cache_view.picture import extent
from attnlab_widgets.cache_view.words import size

import attnlab
from attnlab.compression.quantized_cache import quantized_cache
from attnlab.measure.cache import kept
from tests.widgets.stored import assert_fresh, write


def switched(name: str, scope: str, kind: str, layer: int = 1, **state: Any) -> CacheView:
    view = CacheView(name, layer=layer, scope=scope, **state)
    view.switch(kind)
    return view


def tiny(**options: Any) -> attnlab.TinyTransformer:
    return attnlab.TinyTransformer(11, dim=32, layers=4, heads=4, positions="none", **options)


def widgets() -> list[CacheView]:
    return [
        *(CacheView(name, tokens=n) for name in presets() for n in (1, 1000, 131_072, 1_048_576)),
        *(switched("gpt_oss", scope, "mla") for scope in SCOPES),
        *(switched("llama", SCOPES[3], "window", 3, bits=bits, tokens=4096) for bits in (8, 4, 2)),
        switched("llama", SCOPES[1], "shared"),
        switched("mamba2", SCOPES[2], "mqa", 63),
        CacheView(tiny(), tokens=100, bits=2),
    ]


def case(one: CacheView) -> dict[str, Any]:
    return {
        "preset": one.preset.as_json(), "name": one.name, "layers": list(one.layers),
        "tokens": one.tokens, "bits": one.bits, "layer": one.layer, "scope": one.scope,
        "sizes": [float(x) for x in one.layer_bytes()], "published": float(one.published()),
        "scoped": sorted(scoped(one.scope, one.layer, len(one.layers))),
        "extents": [[float(x) for x in extent(one.preset.kinds[key], one.tokens, 250)]
                    for key in one.layers],
        "said": one.description(),
    }  # fmt: skip


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("cache.json", cases())


@pytest.mark.parametrize(
    ("name", "lengths"), [("gpt_oss", (127, 128)), ("gemma3n", (5000,)), ("deepseek_v3", (5000,))]
)
def test_a_preset_is_what_the_model_keeps(name: str, lengths: tuple[int, ...]) -> None:
    pytest.importorskip("transformers", minversion="5")
    for tokens in lengths:
        found = kept(name, tokens)
        view = CacheView(name, tokens=tokens)
        assert view.layer_bytes() == [layer.bytes for layer in found.layers]


def test_the_stored_counts_are_those_of_the_command() -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    stored = presets()["gemma3_text"]
    if transformers.__version__ in stored.source:
        found = model("gemma3_text")
        assert [key for key, times in found["layers"] for _ in range(times)] == stored.layers
        assert [kind["per_token"] for kind in found["kinds"].values()] == [4096, 4096]
        assert found["layers"][:2] == [["window", 5], ["all", 1]]
    assert shape("deepseek_v3") == {"heads": 128, "groups": 128, "width": 128, "window": None}


def test_a_model_of_ours_is_counted() -> None:
    mixed = tiny(
        attention=["streaming", "full", "linear", "full"], cache_of=[0, 1, 2, 1],
        attention_options=[{"sinks": 0, "window": 6}, {}, {}, {}],
    )  # fmt: skip
    view = CacheView(mixed)  # counts it at three lengths
    for tokens in (1, 5, 6, 400, 131_072):
        view.tokens = tokens
        assert view.layer_bytes() == [layer.bytes for layer in kept(mixed, tokens).layers]
    assert view.layers == ["window", "all", "state", "shared"]
    assert repr(view).startswith("CacheView: TinyTransformer, 131,072 tokens: 4 layers keep")


def test_what_a_layer_could_keep_is_what_models_of_ours_keep() -> None:
    """Heads, groups and latents by formula, against layers of that kind."""
    kinds = alternatives(heads=4, groups=2, width=8, window=None)
    for name, options in (
        ("mha", {"attention": "full"}),
        ("gqa", {"attention": "gqa", "attention_options": {"kv_heads": 2}}),
        ("mqa", {"attention": "mqa"}),
    ):
        found = kept(tiny(**options), 1000).layers[0].bytes
        assert kinds[name].bytes(1000) == found
    latent = attnlab.TinyTransformer(
        11, dim=256, layers=1, heads=4, attention="mla", attention_options={"latent_dim": 512},
        positions="none",
    )  # fmt: skip
    assert kinds["mla"].bytes(1000) == kept(latent, 1000).bytes


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_fewer_bits_are_those_of_a_rounded_cache(bits: int) -> None:
    big = attnlab.TinyTransformer(11, dim=64, layers=1, heads=2, positions="none")
    small = quantized_cache(big, bits=bits, group=32, residual=128)
    kind = alternatives(2, 2, 32, None)["mha"]
    for tokens in (128, 1280, 12800):
        # Keys of whole groups of 128 are all rounded; the newest 128 values are not.
        newest = 128 * kind.per_token / 2 * (1 - (bits + 1) / 16)
        assert kind.bytes(tokens, bits) == kept(small, tokens).bytes + newest


def test_the_sentence_says_what_is_kept() -> None:
    assert CacheView().description() == (
        "gpt_oss, 1,048,576 tokens: 36 layers keep 38.7 GB. 18 × keys and values of 8 groups keep "
        "nearly all of it."
    )
    few = switched("gpt_oss", SCOPES[3], "window", bits=4)
    assert few.description() == (
        "gpt_oss, 1,048,576 tokens in 4 bits: 36 layers keep 6.05 GB, 6.39 times less than the "
        "model (38.7 GB). 9 × keys and values of 8 groups keep nearly all of it."
    )
    none = switched("llama", SCOPES[1], "shared")
    assert none.description().endswith("keep 0 B, where the model keeps 550 GB.")
    assert "one token" not in CacheView(tokens=1).description()
    assert "1 token: " in CacheView(tokens=1).description()
    assert [size(x) for x in (0, 999, 1000, 1e6, 2.5e9, 4e15)] == [
        *("0 B", "999 B", "1 kB", "1 MB", "2.5 GB", "4,000 TB"),
    ]  # fmt: skip


def test_windows_save_from_their_length_on() -> None:
    few = [switched("llama", SCOPES[3], "window", tokens=n) for n in (1024, 1025)]
    assert few[0].bytes() == few[0].published()
    assert few[1].bytes() < few[1].published()


def test_scopes_count_from_the_chosen_layer() -> None:
    assert [sorted(scoped(scope, 1, 6)) for scope in SCOPES] == [
        [1], [0, 1, 2, 3, 4, 5], [1, 3, 5], [0, 2, 3, 4],
    ]  # fmt: skip


def test_states_are_set_and_refused_in_sentences() -> None:
    one = CacheView("llama", tokens=7)
    one.layers = ["mqa"] * 32
    one.name = "gpt_oss"
    assert (len(one.layers), one.layer, one.tokens) == (36, 1, 7)
    for name, value, words in (
        ("name", "gpt", "there is no model 'gpt'"),
        ("layers", ["all"], "`layers` should name a kind for each of the 36 layers, got 1"),
        ("layers", ["al"] * 36, "there is no kind 'al'"),
        ("layers", [3] * 36, "each of `layers` should be the name of a kind, got 3"),
        ("tokens", 0, "`tokens` should be from 1 to 1,048,576, got 0"),
        ("tokens", 2**21, "`tokens` should be from 1 to 1,048,576, got 2,097,152"),
        ("bits", 3, "`bits` should be 16, 8, 4 or 2, got 3"),
        ("layer", 36, "`layer` should be 0 to 35 here, got 36"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    for arguments, words in (
        ({"model": "gpt_os"}, "there is no model 'gpt_os'; did you mean"),
        ({"model": 3}, "the name of a preset or a language model of attnlab, got a int"),
        ({"scope": "all"}, "there is no scope 'all'"),
        ({"layers": ["all"]}, "a kind for each of the 36 layers"),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(words)):
            CacheView(**arguments)
    with pytest.raises(ValueError, match="there is no kind 'windows'"):
        one.switch("windows")


def test_the_picture_has_a_row_for_each_layer() -> None:
    one = CacheView("kimi_linear")
    boxes = [part for kind, part in one.still().parts if kind == "box"]
    assert len(boxes) == 3 * 27  # ground, what is kept, bytes
    assert extent(Kind("none", 0), 10, 250) == (0, 0)


if __name__ == "__main__":
    write("cache.json", cases())
