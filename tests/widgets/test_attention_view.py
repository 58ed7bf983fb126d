"""The attention view, its Python side: what it takes, what it refuses, what it sends and saves."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets import attention_view, quantization
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.attention_view.picture import Maps
from torch import nn

import attnlab
from attnlab.core.probe import record
from attnlab.lens.heads import head_statistics
from attnlab.lens.mixing import mixing_matrix
from attnlab.lens.sources import layers
from attnlab.lens.sources.tokens import Tokens

LAYERS, HEADS, N, M = 2, 3, 7, 11


def weights(*shape: int) -> torch.Tensor:
    return (2 * torch.randn(*shape)).softmax(dim=-1)


def read(view: AttentionView, layer: int = 0, step: int = 0, which: int = 0) -> np.ndarray:
    """A layer as the front end reads it (its JavaScript mirror has tests of its own)."""
    header = view._recording["blocks"][step][which][layer]
    shape = view._recording["layers"][layer]
    h, n, m = shape["h"], shape["n"], shape["m"]
    at = header["at"] + (4 * h * m if header["norms"] else 0)
    first = np.frombuffer(view._data, "<f4", h * n, at).reshape(h, n)
    scales = np.frombuffer(view._data, "<f4", h * n, at + 4 * h * n).reshape(h, n)
    found = np.frombuffer(view._data, np.uint8, h * n * m, at + 8 * h * n).reshape(h, n, m)
    maps = quantization.decode(found, scales, header["signed"])
    maps[..., 0] = first
    return maps


def recorded(**options: object) -> tuple[object, list[str]]:
    model = attnlab.TinyTransformer(13, dim=24, layers=LAYERS, heads=HEADS, **options)
    tokens = torch.arange(N)[None] % 13
    with attnlab.watch(model) as seen:
        model(tokens)
    return seen, [f"t{i}" for i in range(N)]


# What it takes


def test_an_array_comes_back_within_the_bound() -> None:
    maps = weights(LAYERS, HEADS, N, N)
    view = AttentionView(maps)
    for layer in range(LAYERS):
        wanted = maps[layer].numpy()
        error = np.abs(read(view, layer) - wanted)
        bound = quantization.error_bound(wanted, wanted[..., 1:].max(-1, keepdims=True))
        assert (error <= bound).all()
        assert error.max() > 0
    assert [x["name"] for x in view._recording["layers"]] == ["layer.0", "layer.1"]


def test_signed_maps_come_back_within_the_bound() -> None:
    maps = torch.randn(1, HEADS, N, M)
    view = AttentionView(maps)
    assert view._recording["signed"]
    wanted = maps[0].numpy()
    bound = quantization.error_bound(
        wanted, np.abs(wanted[..., 1:]).max(-1, keepdims=True), signed=True
    )
    assert (np.abs(read(view) - wanted) <= bound).all()


def test_a_sink_does_not_cost_the_precision_of_its_row() -> None:
    row = torch.tensor([0.98, 0.011, 0.009]).expand(1, 1, 3, 3)
    assert np.abs(read(AttentionView(row))[..., 2] - 0.009).max() < 4e-5


def test_a_recording_gives_weights_names_and_norms() -> None:
    seen, tokens = recorded()
    view = AttentionView(seen, tokens)
    assert [x["name"] for x in view._recording["layers"]] == seen.names
    assert np.abs(read(view, 1) - seen[1].weights[0].numpy()).max() < 0.004
    assert view._recording["norms"]
    norms = np.frombuffer(view._data, "<f4", HEADS * N).reshape(HEADS, N)
    np.testing.assert_allclose(norms, seen[0].values[0].norm(dim=-1).detach(), rtol=1e-6)
    assert np.allclose(read(AttentionView(seen[0], tokens)), read(view))


def test_shared_value_heads_are_repeated() -> None:
    module = attnlab.build("multi_query", dim=24, heads=6, kv_heads=2)
    with attnlab.watch(module) as seen:
        module(torch.randn(1, N, 24))
    view = AttentionView(seen)
    norms = np.frombuffer(view._data, "<f4", 6 * N).reshape(6, N)
    assert (norms[0] == norms[1]).all()
    assert (norms[0] == norms[2]).all()
    assert (norms[0] != norms[3]).any()


def test_statistics_are_those_of_the_lens() -> None:
    maps = weights(1, HEADS, N, N)
    found = AttentionView(maps)._recording["statistics"][0][0][0]
    wanted = head_statistics(maps)
    for name in layers.STATISTICS:
        np.testing.assert_allclose(found[name], getattr(wanted, name), atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_sampled_statistics_are_those_of_the_lens(
    monkeypatch: pytest.MonkeyPatch, masked: bool
) -> None:
    mask = torch.ones(N, N, dtype=torch.bool).tril()[None, None] if masked else None
    maps = torch.randn(HEADS, N, N)
    maps = maps.masked_fill(~mask[0], -torch.inf) if mask is not None else maps
    layer = layers.Layer("layer", maps.softmax(-1).numpy(), mask=mask)
    whole = layer.statistics()
    monkeypatch.setattr(layers, "MANY", N - 1)
    monkeypatch.setattr(layer, "_sampled", lambda _: type(layer)._sampled(layer, np.arange(N)))
    for name, values in layer.statistics().items():
        np.testing.assert_allclose(values, whole[name], atol=2e-5)


def test_hugging_face_outputs() -> None:
    own, cross = weights(1, HEADS, N, N), weights(1, HEADS, N, M)
    outputs = SimpleNamespace(decoder_attentions=(own,), cross_attentions=(cross,))
    tokens, source = [f"t{i}" for i in range(N)], [f"s{i}" for i in range(M)]
    view = AttentionView(outputs, tokens, source_tokens=source)
    first, second = view._recording["layers"]
    assert (first["kind"], second["kind"]) == ("self", "cross")
    assert (second["n"], second["m"]) == (N, M)
    assert [word[0] for word in view._recording["tokens"][second["k"]["set"]]] == source
    assert [word[0] for word in view._recording["tokens"][second["q"]["set"]]] == tokens
    assert "previous" not in view._recording["statistics"][0][0][1]


def test_hugging_face_outputs_are_not_training_steps() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs", reason="needs transformers")
    own, cross = weights(1, HEADS, N, N), weights(1, HEADS, N, M)
    view = AttentionView(
        outputs.Seq2SeqLMOutput(decoder_attentions=(own,), cross_attentions=(cross,)),
        source_tokens=[f"s{i}" for i in range(M)],
    )
    assert view._recording["steps"] == [""]
    assert len(view._recording["layers"]) == 2


def test_hugging_face_outputs_without_weights_are_refused() -> None:
    with pytest.raises(ValueError, match=r"attnlab\.watch"):
        AttentionView(SimpleNamespace(attentions=(None, None)))
    with pytest.raises(ValueError, match="fused kernel"):
        AttentionView(SimpleNamespace(attentions=None))


def test_encoder_decoder_recording() -> None:
    model = attnlab.TinyTransformer(13, dim=24, layers=1, heads=HEADS, kind="encoder_decoder")
    with attnlab.watch(model) as seen:
        model(torch.arange(N)[None], source=torch.arange(M)[None])
    target, source = [f"t{i}" for i in range(N)], [f"s{i}" for i in range(M)]
    view = AttentionView(seen, target, source_tokens=source)
    layers = view._recording["layers"]
    assert [(x["n"], x["m"]) for x in layers] == [(M, M), (N, N), (N, M)]
    message = [view._recording["tokens"][x["k"]["set"]][0][0] for x in layers]
    assert message == ["s0", "t0", "s0"]


def test_mixing_matrices() -> None:
    mixing = mixing_matrix(nn.Linear(5, 5), torch.randn(1, N, 5))
    view = AttentionView([mixing, mixing])
    assert view._recording["layers"][1]["h"] == 1
    assert mixing.how in view._recording["layers"][0]["name"]


def test_decoding_steps_name_the_last_positions() -> None:
    seen = [weights(1, HEADS, 1, m) for m in (4, 5)]
    parts = [layers.Layer(f"attention#{m}", x[0].numpy()) for m, x in enumerate(seen, 2)]
    tokens = Tokens(["a", "b", "c", "d", "e"], None)
    assert [tokens.place(part)["q"]["start"] for part in parts] == [3, 4]


def test_batch_rows() -> None:
    seen, _ = recorded()
    maps = weights(3, HEADS, N, N)
    assert np.allclose(read(AttentionView([maps], batch=2)), maps[2], atol=0.004)
    with pytest.raises(ValueError, match="`batch` should be from 0 to 2"):
        AttentionView([maps], batch=3)
    with pytest.raises(ValueError, match="`batch` should be from 0 to 0"):
        AttentionView(seen, batch=1)


def test_a_comparison_and_training_steps() -> None:
    first, second = weights(LAYERS, HEADS, N, N), weights(LAYERS, HEADS, N, N)
    view = AttentionView({0: first, 500: second}, compare={0: second, 500: first})
    assert view._recording["steps"] == ["0", "500"]
    assert view.step == 1
    assert np.allclose(read(view, 1, step=1, which=1), first[1], atol=0.004)
    view.shown = "difference"
    with pytest.raises(ValueError, match="same training steps"):
        AttentionView({0: first}, compare={1: second})
    with pytest.raises(ValueError, match="same layers, heads and lengths"):
        AttentionView(first, compare=second[:, :, :5, :5])


def test_rows_of_nan_are_empty_and_counted() -> None:
    maps = weights(1, HEADS, N, N)
    maps[0, 1, 2] = torch.nan
    view = AttentionView(maps)
    assert view._recording["broken"] == 1
    assert (read(view)[1, 2] == 0).all()
    with pytest.raises(ValueError, match="infinite"):
        AttentionView(maps.nan_to_num(posinf=0) + torch.inf)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(5), r"axes \(n, m\), \(heads, n, m\) or \(layers, heads, n, m\)"),
        ([torch.zeros(5)], r"layer 0 has the shape \(5,\)"),
        ([], "no layer"),
        ({}, "empty dict"),
        ("text", "should be a recording"),
        (torch.zeros(1, 2, 0, 0), "is empty"),
    ],
)
def test_other_sources_are_refused(source: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        AttentionView(source)


def test_tokens_must_fit() -> None:
    maps = weights(1, HEADS, N, N)
    with pytest.raises(
        ValueError, match="7 queries, but `tokens` holds 5 tokens; give one for each"
    ):
        AttentionView(maps, list("abcde"))
    with pytest.raises(TypeError, match="split it first"):
        AttentionView(maps, "abcdefg")
    with pytest.raises(ValueError, match="source_tokens"):
        AttentionView(weights(1, HEADS, N, M), list("abcdefg"))


# Long inputs


def test_long_inputs_keep_the_largest_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_view, "WHOLE", HEADS * N * N - 1)
    monkeypatch.setattr(quantization, "KEPT", 2)
    monkeypatch.setattr(quantization, "TILES", 4)
    maps = weights(1, HEADS, N, N)
    view = AttentionView(maps)
    header = view._recording["blocks"][0][0][0]
    assert header["whole"] is False
    assert (header["kept"], header["side"]) == (2, 2)
    numbers = np.frombuffer(view._data, "<f4", 3 * HEADS * N).reshape(3, HEADS, N)
    wanted = maps[0].numpy()
    np.testing.assert_allclose(numbers[0], wanted[..., 0])
    np.testing.assert_allclose(numbers[1], 1, rtol=1e-5)
    np.testing.assert_allclose(numbers[2], wanted[..., 1:].max(-1))
    at = 4 * (3 * HEADS * N + HEADS * 4)
    places = np.frombuffer(view._data, "u1", HEADS * N * 2, at).reshape(HEADS, N, 2)
    order = np.argsort(-wanted[..., 1:], axis=-1)[..., :2] + 1
    assert (places == order).all()


def test_tiles_hold_the_weight_of_largest_size() -> None:
    rows = np.array([[1, -5, 2], [3, 4, 0], [0, 0, -7]], np.float32)
    assert quantization._tiled(rows, 2, True).tolist() == [[-5, 2], [0, -7]]
    assert quantization._tiled(np.abs(rows), 2, False).tolist() == [[5, 2], [0, 7]]


def test_columns_and_codes_of_long_inputs_are_written_byte_by_byte() -> None:
    maps = weights(2, 5, 70_000).numpy()
    header = {}
    *_, low, middle, high, steps, _ = quantization._kept(maps, None, False, 256, header)
    assert header["planes"] == 3
    columns, codes = quantization.unkept([low, middle, high], steps)
    rest = maps.copy()
    rest[..., 0] = 0
    np.testing.assert_array_equal(columns[..., 0], rest.argmax(-1))
    assert (codes[..., 0] == 255).all()
    assert (np.diff(codes.astype(int), axis=-1) <= 0).all()
    kept = np.take_along_axis(rest, columns, -1)
    np.testing.assert_allclose(quantization.decode(codes, rest.max(-1)), kept, atol=1e-4)


MASKS = {
    "causal": lambda n, m, h: torch.ones(n, m).tril() > 0,
    "last rows": lambda n, m, h: torch.ones(n, m).tril(m - n) > 0,
    "padding": lambda n, m, h: torch.arange(m) % 5 != 3,
    "causal and padding": lambda n, m, h: (
        (torch.ones(n, m).tril(m - n) > 0) & (torch.arange(m) > 1)
    ),
    "window": lambda n, m, h: (torch.arange(m) - torch.arange(n)[:, None]).abs() < 3,
    "one for each head": lambda n, m, h: torch.rand(1, h, n, m) < 0.5,
    "the same for all heads": lambda n, m, h: (torch.rand(n, m) < 0.5).expand(1, h, n, m),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_come_back(name: str) -> None:
    mask = MASKS[name](N, M, HEADS)
    wanted = mask.expand(1, HEADS, N, M)[0].numpy()
    header, bits = quantization.masked(mask[(None,) * (4 - mask.dim())], (HEADS, N, M))
    header["at"] = 0 if bits else None
    for head in range(HEADS):
        found = quantization.allowed(header, bits, head, N, M)
        np.testing.assert_array_equal(found, wanted[head])
    rules = name in {"causal", "last rows", "padding", "causal and padding"}
    assert header["heads"] == (0 if rules else 3 if name == "one for each head" else 1)


# What may be set


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layer", LAYERS, "`layer` should be from 0 to 1"),
        ("head", -1, "`head` should be from 0 to 2"),
        ("heads", [[0, HEADS]], "pairs"),
        ("query", N, "`query` should be from 0 to 6"),
        ("key", N, "`key` should be from 0 to 6"),
        ("threshold", 1.5, "from 0 to 1"),
        ("top_k", -1, "`top_k`"),
        ("step", 1, "`step` should be from 0 to 0"),
        ("shown", "difference", "`compare`"),
        ("shown", "third", "shown"),
        ("sort", "colour", "sort"),
        ("value_weighted", True, r"attnlab\.watch"),
        ("theme", "pink", "theme"),
        ("panels", [], "`panels` should hold some of"),
        ("panels", ["matrix", "words"], "`panels` should hold some of"),
    ],
)
def test_what_does_not_exist_cannot_be_set(name: str, value: object, message: str) -> None:
    view = AttentionView(weights(LAYERS, HEADS, N, N))
    before = getattr(view, name)
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(view, name, value)
    assert getattr(view, name) == before


def test_show_keeps_what_still_exists() -> None:
    seen, tokens = recorded()
    view = AttentionView(seen, tokens)
    view.layer, view.head, view.query, view.heads = 1, 2, 6, [[0, 1], [1, 0]]
    view.value_weighted = True
    view.show(weights(1, 2, 5, 5))
    assert (view.layer, view.head, view.query, view.heads) == (0, 1, None, [[0, 1]])
    assert view.value_weighted is False
    assert len(view._recording["layers"]) == 1


# What is sent and saved


def test_large_arrays_travel_as_bytes() -> None:
    view = AttentionView(weights(LAYERS, HEADS, 61, 61))
    assert isinstance(view.get_state()["_data"], bytes)
    assert len(json.dumps(view._recording)) < 5_000


def test_hostile_tokens_are_text(tmp_path) -> None:
    hostile = [
        *("</script><script>alert(1)</script>", "<!--", "&amp;", "\u202eabc", "\u05e9\u05dc"),
        *("\U0001f642", "x" * 10_000),
    ]
    view = AttentionView(weights(1, HEADS, N, N), hostile)
    page = view.save_html(tmp_path / "view.html").read_text()
    assert page.count("<script") == page.count("</script") == 2
    assert "<!--" not in page
    for short, *more in view._recording["tokens"][0]:
        assert 0 < len(short) <= 16
        assert all(len(text) < 200 for text in more)
    assert view._recording["tokens"][0][6][1].endswith("(10,000 characters)")


def test_a_lone_surrogate_is_a_token_too(tmp_path) -> None:
    AttentionView(weights(1, 1, 2, 2), ["\ud800", b"\xff"]).save_html(tmp_path / "view.html")


def test_twelve_by_twelve_by_128_fits_in_three_megabytes(tmp_path) -> None:
    maps = torch.randn(12, 12, 128, 128).softmax(dim=-1)  # hardly compressible
    assert AttentionView(maps).save_html(tmp_path / "view.html").stat().st_size < 3_000_000


def test_twelve_by_twelve_by_512_fits_in_eight_megabytes(tmp_path) -> None:
    maps = weights(12, 12, 512, 512).tril().numpy()
    path = AttentionView(maps).save_html(tmp_path / "view.html")
    assert path.stat().st_size < 8e6


def test_the_bundle_must_end_with_its_face() -> None:
    from attnlab_widgets.base import standalone

    assert standalone("var a=1;export{a as default};").endswith("a.page(document);")
    with pytest.raises(ValueError, match="npm run build"):
        standalone("var a=1;")
    with pytest.raises(ValueError, match="script element"):
        standalone('var a="</script>";export{a as default};')


def test_a_notebook_stores_the_bundle_deflated_and_a_page_as_it_is(tmp_path) -> None:
    from attnlab_widgets.base import STATIC, inflated

    bundle = (STATIC / "attention_view.js").read_text()
    view = AttentionView(weights(1, HEADS, N, N))
    module = str(view._esm)
    assert len(module) < 0.55 * len(bundle)
    assert inflated(module) == bundle == inflated(bundle)
    assert bundle[:5000] in view.save_html(tmp_path / "view.html").read_text()


# Arrays say nothing about what they read: the tokens do

QUERIES, KEYS = [f"q{i}" for i in range(N)], [f"k{i}" for i in range(M)]


def named(view: AttentionView, layer: int) -> tuple[str, str, str]:
    """The kind of a layer, and its first query and key."""
    found = view._recording["layers"][layer]
    words = view._recording["tokens"]
    return found["kind"], *(words[found[side]["set"]][0][0] for side in "qk")


def test_an_array_of_cross_attention_takes_both_token_lists() -> None:
    view = AttentionView(weights(LAYERS, HEADS, N, M), QUERIES, source_tokens=KEYS)
    assert named(view, 1) == ("cross", "q0", "k0")
    assert "previous" not in view._recording["statistics"][0][0][1]
    view = AttentionView(weights(LAYERS, HEADS, M, N), KEYS, source_tokens=QUERIES)
    assert named(view, 0) == ("cross", "k0", "q0")
    view = AttentionView(weights(LAYERS, HEADS, N, M), source_tokens=KEYS)
    assert named(view, 0) == ("cross", "0", "k0")


def test_arrays_of_an_encoder_decoder_find_their_tokens_by_their_lengths() -> None:
    maps = [weights(HEADS, *shape) for shape in ((M, M), (N, N), (N, M))]
    view = AttentionView(maps, QUERIES, source_tokens=KEYS)
    assert [named(view, at) for at in range(3)] == [
        ("encoder", "k0", "k0"),
        ("self", "q0", "q0"),
        ("cross", "q0", "k0"),
    ]


def test_of_two_texts_of_one_length_the_keys_are_the_source() -> None:
    other = [f"o{i}" for i in range(N)]
    view = AttentionView(weights(1, HEADS, N, N), QUERIES, source_tokens=other)
    assert named(view, 0) == ("cross", "q0", "o0")


def test_a_name_that_says_nothing_leaves_it_to_the_lengths() -> None:
    layer = layers.Layer("blocks.0.mixer", weights(HEADS, N, M).numpy())
    tokens = Tokens(QUERIES, KEYS)
    assert tokens.sets[tokens.place(layer)["k"]["set"]] == KEYS
    step = layers.Layer("blocks.0.mixer#3", weights(HEADS, 1, M).numpy())
    tokens.settle(step)
    assert step.kind == "self"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (
            {"tokens": QUERIES[:-1], "source_tokens": KEYS},
            ValueError,
            "7 queries.*`tokens` holds 6",
        ),
        (
            {"tokens": QUERIES, "source_tokens": KEYS[:-1]},
            ValueError,
            "11 keys.*`source_tokens` ho",
        ),
        ({"tokens": QUERIES}, ValueError, "11 keys.*7 tokens.*the keys' tokens as `source_tokens`"),
        ({"tokens": KEYS, "source_tokens": QUERIES}, ValueError, "the other way round"),
        ({"tokens": "abcdefg", "source_tokens": KEYS}, TypeError, "split it first"),
        ({"tokens": QUERIES, "source_tokens": "abc"}, TypeError, "`source_tokens`.*split it first"),
        ({"tokens": 7, "source_tokens": KEYS}, TypeError, "`tokens` should be a list.*got int"),
        ({"tokens": [QUERIES], "source_tokens": KEYS}, ValueError, r"one row.*tokens\[0\]"),
        ({"tokens": QUERIES, "source_tokens": torch.arange(M)[None]}, ValueError, "one row"),
        ({"tokens": QUERIES, "source_tokens": KEYS, "batch": 1}, ValueError, "no batch axis"),
        ({"tokens": QUERIES, "source_tokens": KEYS, "names": ("one",)}, ValueError, "two names"),
    ],
)
def test_tokens_that_do_not_fit_an_array_are_refused(arguments, kind, words) -> None:
    with pytest.raises(kind, match=words):
        AttentionView(weights(LAYERS, HEADS, N, M), **arguments)


def test_source_tokens_that_no_layer_reads_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no layer reads `source_tokens`.*leave them out"):
        AttentionView(weights(LAYERS, HEADS, N, N), QUERIES, source_tokens=KEYS)
    seen, tokens = recorded()
    with pytest.raises(ValueError, match="no layer reads `source_tokens`"):
        AttentionView(seen, tokens, source_tokens=KEYS)


def test_what_holds_no_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`source` should hold real numbers.*str"):
        AttentionView([[["a"]]])
    with pytest.raises(TypeError, match=r"`source` should hold real numbers.*complex"):
        AttentionView(weights(1, HEADS, N, N).to(torch.complex64))


# What the weights leave of one


def left(view: AttentionView, layer: int) -> np.ndarray | None:
    """What the rows of a layer leave of one, as the front end reads it."""
    header, shape = view._recording["blocks"][0][0][layer], view._recording["layers"][layer]
    size = shape["h"], shape["n"]
    if "left" not in header:
        return None
    return np.frombuffer(view._data, "<f4", size[0] * size[1], header["left"]).reshape(size)


def test_a_sink_takes_what_the_rows_leave() -> None:
    """Planted: of each row of the second layer a known share is taken away."""
    maps = weights(LAYERS, HEADS, N, N)
    taken = torch.linspace(0.1, 0.8, HEADS)[:, None] * torch.linspace(0.5, 1, N)
    maps[1] *= 1 - taken[..., None]
    view = AttentionView(maps)
    assert left(view, 0) is None
    assert "sink" not in view._recording["statistics"][0][0][0]
    np.testing.assert_allclose(left(view, 1), taken, atol=1e-6)
    told = view._recording["statistics"][0][0][1]["sink"]
    np.testing.assert_allclose(told, taken.mean(1), atol=1e-5)
    np.testing.assert_allclose(Maps(view).left(1, 2), taken[2], atol=1e-6)
    view.sort = "sink"
    view.hide_first = True  # the rows are made to sum to one
    assert Maps(view).left(1, 2) is None


def test_the_sink_of_a_model_is_what_it_noted() -> None:
    model = attnlab.TinyTransformer(13, dim=24, layers=1, heads=HEADS, attention="sink")
    with record() as notes, attnlab.watch(model) as seen:
        model(torch.arange(N)[None])
    view = AttentionView(seen, [f"t{i}" for i in range(N)])
    np.testing.assert_allclose(left(view, 0), notes["sink"][0][0, :, :, 0].detach(), atol=1e-6)


def test_no_share_is_told_where_weights_are_none() -> None:
    """Negative weights subtract, and rows that sum to more than one leave nothing."""
    signed = weights(1, HEADS, N, N) - 0.5 * weights(1, HEADS, N, N)
    view = AttentionView(signed)
    told = view._recording["statistics"][0][0][0]
    assert left(view, 0) is None
    assert "sink" not in told
    below = (-signed[0]).clamp(min=0).sum(-1).mean(-1)
    np.testing.assert_allclose(told["negative"], below, atol=1e-5)
    assert left(AttentionView(1.5 * weights(1, HEADS, N, N)), 0) is None
    nothing = weights(1, HEADS, N, N)
    nothing[:, :, 2] = 0  # a row without any key leaves nothing for a sink
    assert left(AttentionView(nothing), 0) is None


def test_the_still_draws_the_column_apart() -> None:
    maps = weights(1, HEADS, N, N)
    assert "rest of 1" not in AttentionView(maps).still().svg("")
    assert "rest of 1" in AttentionView(0.7 * maps).still().svg("")


def test_signed_weights_of_a_differential_head_keep_their_sign() -> None:
    """λ above one: weights are negative, and are told as such."""
    model = attnlab.TinyTransformer(13, dim=24, layers=1, heads=HEADS, attention="differential")
    with torch.no_grad():
        vectors = model.decoder.blocks[0].attention.vectors
        vectors[:2], vectors[2:] = 0.3, 0
    with record() as notes, attnlab.watch(model) as seen:
        model(torch.arange(N)[None])
    noted = notes["weights"][0][0].detach().numpy()
    assert (noted < -0.01).any()
    view = AttentionView(seen, [f"t{i}" for i in range(N)])
    assert view._recording["signed"]
    assert np.abs(read(view) - noted).max() < 0.02
    told = view._recording["statistics"][0][0][0]
    np.testing.assert_allclose(told["negative"], -np.minimum(noted, 0).sum(-1).mean(-1), atol=1e-5)
