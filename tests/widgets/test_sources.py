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
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.base import HasStill

import attnlab
from attnlab.lens.sources.layers import layers_of

LAYERS, HEADS, N, M = 2, 3, 7, 11
OWN, SOURCE = [f"t{at}" for at in range(N)], [f"s{at}" for at in range(M)]


def weights(*shape: int) -> torch.Tensor:
    return (2 * torch.randn(*shape)).softmax(dim=-1)


def maps(source: object) -> list[np.ndarray]:
    return [layer.maps for layer in layers_of(source)]


def titles(view: AttentionView) -> list[str]:
    return [layer["title"] for layer in view._recording["layers"]]


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
    with pytest.raises(ValueError, match=r"hook_pattern' should hold a tensor \(b, heads, n, m\)"):
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
        ({"image": np.zeros((12, 12)), "grid": 3}, r"`grid` should be \(rows, columns\)"),
        ({"grid": (3, 3)}, "give the `image`, too"),
        ({"image": np.zeros((12, 12, 7))}, r"`image` should be \(height, width\)"),
        ({"image": "cat.png"}, "`image` should be an array, a tensor or a PIL image"),
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
            and issubclass(value, HasStill)
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


INSIDE = {"BaseWidget", "HasStill", "SaysUntrained", "TrainingLab", "Wall"}
"""What others are made of, or what a function makes."""


def test_the_package_costs_nothing_until_a_widget_is_used() -> None:
    code = (
        "import sys, attnlab_widgets\n"
        "print([x for x in ('torch', 'ipywidgets', 'plotly', 'numpy') if x in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
