"""What AttentionView takes beside recordings, and what the layers of models with two sides are
called."""

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import attnlab_widgets
import numpy as np
import pytest
import torch
from attnlab_widgets import layer_names
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.base import Pictured
from attnlab_widgets.joined import Decoded, Weights, Windowed, Windows, decoded
from attnlab_widgets.layers import layers_of

import attnlab

LAYERS, HEADS, N, M = 2, 3, 7, 11
OWN, SOURCE = [f"t{at}" for at in range(N)], [f"s{at}" for at in range(M)]


def weights(*shape: int) -> torch.Tensor:
    return (2 * torch.randn(*shape)).softmax(dim=-1)


def maps(source: object) -> list[np.ndarray]:
    return [layer.maps for layer in layers_of(source)]


def titles(view: AttentionView) -> list[str]:
    return [layer["title"] for layer in view._recording["layers"]]


# Arrays


def test_one_map_and_one_layer() -> None:
    whole = weights(LAYERS, HEADS, N, M)
    for one in (whole[1, 2], whole[1, 2].numpy()):
        (found,) = maps(one)
        assert (found == whole[1, 2:3].numpy()).all()
    (found,) = maps(whole[1])
    assert (found == whole[1].numpy()).all()
    assert [x.shape for x in maps([whole[0, 0], whole[1]])] == [(1, N, M), (HEADS, N, M)]


# TransformerLens


class Cache:
    """Like an ActivationCache: no Mapping, but keys and items."""

    def __init__(self, found: Mapping[str, torch.Tensor]) -> None:
        self._found = dict(found)

    def keys(self) -> object:
        return self._found.keys()

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._found[name]


def hooks(rows: int = 2) -> dict[str, torch.Tensor]:
    found = {"hook_embed": torch.zeros(rows, N, 5)}
    for at in range(LAYERS):
        found[f"blocks.{at}.attn.hook_v"] = torch.randn(rows, N, HEADS, 5)
        found[f"blocks.{at}.attn.hook_pattern"] = weights(rows, HEADS, N, N)
    return found


@pytest.mark.parametrize("kind", [dict, Cache])
def test_a_cache_of_activations(kind: type) -> None:
    found = hooks()
    view = AttentionView(kind(found), OWN, batch=1)
    assert view._recording["steps"] == [""]
    assert [x["name"] for x in view._recording["layers"]] == ["blocks.0.attn", "blocks.1.attn"]
    wanted = found["blocks.1.attn.hook_pattern"][1].numpy()
    assert (list(layers_of(kind(found), 1))[1].maps == wanted).all()
    norms = found["blocks.1.attn.hook_v"][1].norm(dim=-1).T
    np.testing.assert_allclose(list(layers_of(kind(found), 1))[1].norms, norms, rtol=1e-6)
    without_rows = {name: value[1] for name, value in found.items()}
    assert (maps(kind(without_rows))[1] == wanted).all()


def test_a_cache_without_patterns_is_refused() -> None:
    for kind in (dict, Cache):
        with pytest.raises(ValueError, match="names_filter"):
            AttentionView(kind({"blocks.0.hook_resid_pre": torch.zeros(1, N, 5)}))
    with pytest.raises(ValueError, match=r"hook_pattern' must hold a tensor \(b, heads, n, m\)"):
        AttentionView({"blocks.0.attn.hook_pattern": weights(N, N)})


def test_a_cache_of_transformer_lens_itself(tmp_path: Path) -> None:
    lens = pytest.importorskip(
        "transformer_lens", reason="needs TransformerLens: pip install transformer_lens"
    )
    cache, wanted, names = real_cache(lens, tmp_path)
    view = AttentionView(cache, OWN)
    assert type(cache).__name__ == "ActivationCache"
    assert [x["name"] for x in view._recording["layers"]] == names
    assert view._recording["norms"]
    for found, expected in zip(maps(cache), wanted, strict=True):
        np.testing.assert_allclose(found, expected[0].detach(), atol=1e-6)


def real_cache(lens: object, folder: Path) -> tuple[object, list[torch.Tensor], list[str]]:
    """Of a small model with random weights: from 4.0 on, TransformerLens wraps Hugging Face's."""
    names = [f"blocks.{at}.attn" for at in range(LAYERS)]
    tokens = torch.arange(N)[None]
    try:
        config = lens.HookedTransformerConfig(
            n_layers=LAYERS, d_model=12, n_ctx=16, d_head=4, n_heads=HEADS, d_vocab=37,
            act_fn="gelu",
        )  # fmt: skip
        model = lens.HookedTransformer(config)
    except (ImportError, AttributeError):
        model = bridged(folder)
    _, cache = model.run_with_cache(tokens)
    return cache, [cache[f"{name}.hook_pattern"] for name in names], names


def bridged(folder: Path) -> object:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=37, n_embd=12, n_layer=LAYERS, n_head=HEADS, n_positions=16)
    network = GPT2LMHeadModel(config)
    network.save_pretrained(folder)
    return TransformerBridge.boot_transformers(str(folder), hf_model=network)


# Generation


def steps(first: int, count: int) -> list[torch.Tensor]:
    """The maps of a prompt and of ``count`` single tokens after it."""
    rows = [weights(1, HEADS, first, first)]
    return rows + [weights(1, HEADS, 1, first + 1 + at) for at in range(count)]


def test_outputs_of_generate_are_one_map_a_layer() -> None:
    made = [steps(4, 3) for _ in range(LAYERS)]
    outputs = SimpleNamespace(attentions=tuple(zip(*made, strict=True)))
    found = maps(outputs)
    assert [x.shape for x in found] == [(HEADS, N, N)] * LAYERS
    for layer, rows in enumerate(made):
        assert (found[layer][:, :4, :4] == rows[0][0].numpy()).all()
        assert (found[layer][:, 5, :6] == rows[2][0, :, 0].numpy()).all()
        assert (found[layer][:, 5, 6:] == 0).all()
    layer = next(layers_of(outputs))
    assert layer.mask is not None
    assert not layer.mask[0, 0, 4, 5]
    assert layer.mask[0, 0, 5, 5]
    AttentionView(outputs, OWN)


def test_outputs_of_an_encoder_decoder_that_generated() -> None:
    cross = [weights(1, HEADS, 1, M) for _ in range(N)]
    outputs = SimpleNamespace(
        encoder_attentions=(weights(1, HEADS, M, M),),
        decoder_attentions=tuple((x,) for x in steps(1, N - 1)),
        cross_attentions=tuple((x,) for x in cross),
    )
    view = AttentionView(outputs, OWN, source_tokens=SOURCE)
    assert titles(view) == ["encoder 0", "decoder 0", "cross 0"]
    assert [x["n"] for x in view._recording["layers"]] == [M, N, N]
    np.testing.assert_array_equal(maps(outputs)[2], torch.cat(cross, dim=2)[0])


def test_a_recording_of_a_generation_takes_all_tokens() -> None:
    model = pytest.importorskip("transformers", reason="needs transformers")
    config = model.GPT2Config(
        vocab_size=37, n_embd=12, n_layer=LAYERS, n_head=HEADS, n_positions=16, bos_token_id=1,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    network = model.GPT2LMHeadModel(config).eval()
    with attnlab.watch(network) as seen, torch.no_grad():
        written = network.generate(torch.arange(3, 7)[None], max_new_tokens=4, do_sample=False)
    view = AttentionView(seen, written[0, :-1])
    with attnlab.watch(network) as once, torch.no_grad():
        network(written[:, :-1])
    assert len(view._recording["layers"]) == LAYERS
    for found, record in zip(maps(seen), once, strict=True):
        np.testing.assert_allclose(found, record.weights[0], atol=1e-5)
    assert view._recording["norms"]


def test_beams_cannot_be_put_together() -> None:
    made = tuple((x,) for x in steps(4, 2))
    with pytest.raises(ValueError, match="num_beams=1"):
        AttentionView(SimpleNamespace(attentions=made, beam_indices=torch.zeros(1)))


def test_layers_that_share_their_module_stay_apart() -> None:
    calls = [Weights("layer", weights(1, HEADS, N, N)), Weights("layer#2", weights(1, HEADS, N, N))]
    assert decoded(calls) == calls
    cross = [Weights("cross", weights(1, HEADS, 1, M)), Weights("cross#2", weights(1, HEADS, 1, M))]
    assert decoded(cross) == cross
    grown = [Weights("own", weights(1, HEADS, 1, 1)), Weights("own#2", weights(1, HEADS, 1, 2))]
    assert [type(call) for call in decoded(grown + cross)] == [Decoded, Decoded]


def test_windows_with_padding() -> None:
    windows = Windows(3, 5, 2, 2)
    places = windows.places()
    assert places.shape == (6, 4)
    assert places[0].tolist() == [0, 1, 5, 6]
    assert places[2].tolist() == [4, -1, 9, -1]
    calls = Weights("block", weights(6, HEADS, 4, 4), torch.randn(6, HEADS, 4, 2))
    whole = Windowed.of(calls, windows)
    assert whole.shape == (1, HEADS, 15, 15)
    np.testing.assert_array_equal(whole.weights[0, :, 9, [4, 9]], calls.weights[2, :, 2, [0, 2]])
    np.testing.assert_array_equal(whole.values[0, :, 9], calls.values[2, :, 2])
    assert whole.mask[0, 0, 9, 4]
    assert not whole.mask[0, 0, 9, 3]
    assert Windowed.of(calls, Windows(4, 4, 4, 4)) is calls


# Names


NAMES = {
    "T5": (
        [
            "encoder.block.0.layer.0.SelfAttention",
            "encoder.block.1.layer.0.SelfAttention",
            "decoder.block.0.layer.0.SelfAttention",
            "decoder.block.0.layer.1.EncDecAttention",
            "decoder.block.1.layer.0.SelfAttention",
            "decoder.block.1.layer.1.EncDecAttention",
        ],
        ["encoder 0", "encoder 1", "decoder 0", "cross 0", "decoder 1", "cross 1"],
    ),
    "one block": (["decoder.block.3.layer.0.x", "decoder.block.3.layer.1.EncDecAttention"],
                  ["decoder 3", "cross 3"]),
    "CLIP": (
        [f"{x}_model.encoder.layers.{at}.self_attn" for x in ("vision", "text") for at in (0, 1)],
        ["vision 0", "vision 1", "text 0", "text 1"],
    ),
    "GPT-2 with cross-attention": (
        ["transformer.h.0.attn", "transformer.h.0.crossattention"], ["self 0", "cross 0"]
    ),
    "BERT": ([f"encoder.layer.{at}.attention.self" for at in range(3)], [None] * 3),
    "Swin": (
        [f"encoder.layers.{x}.blocks.{y}.attention" for x in (0, 1) for y in (0, 1)], [None] * 4
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_called_by_their_side(name: str) -> None:
    names, wanted = NAMES[name]
    assert layer_names.titles(names) == wanted
    together = [wanted[at] for at in layer_names.order(names)]
    first = [x and x.split()[0] for x in together]
    assert first == sorted(first, key=first.index), "each side in one run"


def test_only_is_a_pattern_that_fits() -> None:
    t5 = NAMES["T5"][0]
    assert layer_names.pattern_of(t5[2:], t5[:2]) == "decoder*"
    bart = [f"model.{name}" for name in t5]
    assert layer_names.pattern_of(bart[2:], bart[:2]) == "model.decoder*"
    assert layer_names.pattern_of([t5[0], t5[2]], [t5[3]]) is None
    assert layer_names.pattern_of(t5, []) is None


# Tokens of two sides


def two_sided(only: str | None = None) -> object:
    model = attnlab.TinyTransformer(13, dim=24, layers=1, heads=HEADS, kind="encoder_decoder")
    with attnlab.watch(model, only=only) as seen:
        model(torch.arange(N)[None], source=torch.arange(M)[None])
    return seen


def test_the_tokens_of_each_side_are_asked_for() -> None:
    with pytest.raises(ValueError, match="11 queries, but `tokens` holds 7 tokens") as refused:
        AttentionView(two_sided(), OWN)
    message = str(refused.value)
    assert "give the 11 tokens that the encoder reads as `source_tokens`" in message
    assert 'attnlab.watch(model, only="decoder*")' in message


def test_cross_attention_without_a_source_has_numbered_keys() -> None:
    view = AttentionView(two_sided("decoder*"), OWN)
    assert titles(view) == ["decoder 0", "cross 0"]
    keys = view._recording["layers"][1]["k"]["set"]
    assert view._recording["tokens"][keys] == [[str(at)] for at in range(M)]


def test_the_image_of_a_view() -> None:
    own = weights(1, HEADS, 10, 10)
    image = np.zeros((3, 12, 12), np.float32)
    view = AttentionView([own], image=image)
    assert view._recording["grids"] == [{"rows": 3, "columns": 3, "first": 1}]
    assert view._recording["tokens"][0][0] == ["[CLS]"]
    assert view._recording["tokens"][0][5] == ["1, 1", "patch in row 1, column 1"]
    view = AttentionView([own], image=image, grid=(2, 5))
    assert view._recording["grids"] == [{"rows": 2, "columns": 5, "first": 0}]
    wide = AttentionView([weights(1, HEADS, 8, 8)], image=np.zeros((12, 24), np.uint8))
    assert wide._recording["grids"] == [{"rows": 2, "columns": 4, "first": 0}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": np.zeros((12, 12)), "grid": (9, 9)}, "no layer reads the image"),
        ({"image": np.zeros((12, 12)), "grid": 3}, r"`grid` must be \(rows, columns\)"),
        ({"grid": (3, 3)}, "give the `image`, too"),
        ({"image": np.zeros((12, 12, 7))}, r"`image` must be \(height, width\)"),
        ({"image": "cat.png"}, "`image` must be an array, a tensor or a PIL image"),
        ({"image": np.full((4, 4), np.nan)}, "not finite"),
        ({"image": torch.zeros(4, 4, device="meta")}, "dense tensor with values"),
    ],
)
def test_other_images_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        AttentionView([weights(1, HEADS, 10, 10)], **options)


# The names of the package


def test_widgets_are_found_in_the_package() -> None:
    found = set()
    for page in pkgutil.iter_modules(attnlab_widgets.__path__):
        module = importlib.import_module(f"attnlab_widgets.{page.name}")
        found |= {
            name
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, Pictured)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        }
    offered = set(attnlab_widgets.__all__)
    assert found - offered <= INSIDE
    for name in offered:
        assert getattr(attnlab_widgets, name).__name__ == name
    assert [x for x in dir(attnlab_widgets) if not x.startswith("_")] >= sorted(offered)
    with pytest.raises(AttributeError, match="attnlab_widgets has no 'Viewer'; it has Attention"):
        attnlab_widgets.Viewer  # noqa: B018


INSIDE = {"BaseWidget", "Pictured", "Wall"}
"""What others are made of, or what a function makes."""


def test_the_package_costs_nothing_until_a_widget_is_used() -> None:
    code = (
        "import sys, attnlab_widgets\n"
        "print([x for x in ('torch', 'ipywidgets', 'plotly', 'numpy') if x in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
