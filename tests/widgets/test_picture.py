"""The attention view as a still: the numbers that are drawn, and what the files hold."""

import json
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from attnlab_widgets import attention_view, quantization
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.attention_view.picture import Maps, _pooled, _strongest
from attnlab_widgets.picture_image import SHADE

import attnlab
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, rgb

SCALES = Path(__file__).parents[2] / "widgets/src/lib/colours.js"
LAYERS, HEADS, N = 2, 3, 7


@pytest.fixture
def seen() -> object:
    model = attnlab.TinyTransformer(13, dim=24, layers=LAYERS, heads=HEADS)
    with attnlab.watch(model) as seen:
        model(torch.arange(N)[None])
    return seen


@pytest.mark.parametrize("whole", [True, False])
def test_hidden_first_token_and_value_norms(
    seen: object, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(attention_view, "WHOLE", 0)
        monkeypatch.setattr(quantization, "TILES", 4)
    view = AttentionView(seen)
    view.hide_first = view.value_weighted = True
    weights = seen[1].weights[0, 2].detach().numpy()
    wanted = weights * seen[1].values[0, 2].norm(dim=-1).detach().numpy()
    wanted[:, 0] = 0
    total = wanted.sum(axis=1, keepdims=True)
    wanted = wanted / np.where(total > 0, total, 1)
    np.testing.assert_allclose(Maps(view).one(1, 2), wanted, atol=0.01)


def test_a_difference_is_second_minus_first() -> None:
    first, second = (torch.randn(1, 2, 5, 5).softmax(dim=-1) for _ in range(2))
    view = AttentionView(first, compare=second)
    view.shown = "difference"
    wanted = (second - first)[0, 1].numpy()
    np.testing.assert_allclose(Maps(view).one(0, 1), wanted, atol=0.008)


def test_strongest_lines(seen: object) -> None:
    view = AttentionView(seen)
    view.top_k, view.threshold = 2, 0.1
    row = np.array([0.3, 0.05, -0.4, 0.26])
    assert _strongest(row, view) == [2, 0]
    view.top_k = 0
    assert _strongest(row, view) == [2, 0, 3, 1]
    view.threshold = 0.5
    assert _strongest(row, view) == [2, 0, 3]


def test_pooling_keeps_the_weight_of_largest_size() -> None:
    maps = np.array([[1, -5, 2], [3, 4, 0], [0, 0, -7]], np.float32)
    assert _pooled(maps, 2).tolist() == [[-5, 2], [0, -7]]


def test_svg_says_what_is_not_raw(seen: object, tmp_path) -> None:
    tokens = ["<b>", "&", "\u05e9", "\n", "five", "six", "x" * 99]
    view = AttentionView(seen, tokens)
    view.layer, view.head, view.hide_first = 1, 2, True
    text = view.save_svg(tmp_path / "view.svg").read_text()
    words = ["".join(node.itertext()) for node in ElementTree.fromstring(text).iter()]
    assert "Layer 1 · head 2" in words
    assert "<b>" in words
    assert any(word.startswith("Not the raw weights: first token hidden") for word in words)
    assert text.count("<image") == LAYERS * HEADS + 2  # heads, matrix, scale


def test_masked_pairs_are_hatched(seen: object) -> None:
    """In every head, in the matrix, beside the pinned query's keys, and in the legend."""
    view = AttentionView(seen)
    view.query = 4
    hatched = [part["masked"] for kind, part in view.still().parts if kind == "hatch"]
    above = np.triu(np.ones((N, N), bool), 1)
    assert len(hatched) == LAYERS * HEADS + 3
    assert sum(np.array_equal(one, above) for one in hatched) == LAYERS * HEADS + 1
    assert any(np.array_equal(one[:, 0], above[4]) for one in hatched if one.shape == (N, 1))
    words = [part["content"] for kind, part in view.still().parts if kind == "text"]
    assert any(re.match(r"4 attends to \d 0\.\d\d, ", word) for word in words)
    unmasked = AttentionView(np.full((1, 1, 3, 3), 1 / 3))
    assert not [kind for kind, _ in unmasked.still().parts if kind == "hatch"]


@pytest.mark.parametrize(("layers", "heads", "n"), [(4, 4, 33), (12, 12, 64), (1, 2, 300)])
def test_what_a_notebook_stores_is_small(layers: int, heads: int, n: int) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    drawing = AttentionView((2 * torch.randn(layers, heads, n, n)).softmax(-1)).still()
    assert drawing.wide <= 993
    assert len(drawing.png(colours=32, most=60_000)) <= 60_000


def test_all_tokens_have_a_place_beside_the_lines() -> None:
    for count, least in ((33, 33), (197, 30)):
        view = AttentionView((2 * torch.randn(1, 1, count, count)).softmax(-1))
        view.query = count - 2
        words = [part["content"] for kind, part in view.still().parts if kind == "text"]
        assert len({word for word in words if word.isdecimal()}) >= least
        strongest = _strongest(Maps(view).one(0, 0)[view.query], view)
        assert {str(j) for j in strongest} <= set(words)


def test_png_has_two_pixels_per_unit(seen: object, tmp_path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    view = AttentionView(seen, theme="dark")
    data = view.save_png(tmp_path / "view.png").read_bytes()
    wide, high = struct.unpack(">II", data[16:24])
    svg = ElementTree.fromstring(view.save_svg(tmp_path / "view.svg").read_text())
    assert (wide, high) == (2 * int(svg.get("width")), 2 * int(svg.get("height")))


@pytest.mark.parametrize("name", ["svg", "png"])
def test_the_ending_must_fit(seen: object, name: str, tmp_path) -> None:
    with pytest.raises(ValueError, match=rf"end in \.{name}"):
        getattr(AttentionView(seen), f"save_{name}")(tmp_path / "view.jpg")


def test_what_is_pinned_in_a_longer_layer_does_not_break_a_shorter_one(tmp_path) -> None:
    long, short = np.full((5, 11, 11), 1 / 11, "float32"), np.full((2, 3, 3), 1 / 3, "float32")
    view = AttentionView([long, short])
    view.head, view.query = 4, 10
    view.layer = 1
    text = view.save_svg(tmp_path / "view.svg").read_text()
    assert "Layer 1 · head 1" in text


def test_the_page_has_the_scale_of_the_stills() -> None:
    found = re.search(r"CIVIDIS = (\[.*?\]);", SCALES.read_text("utf-8"))
    assert found
    assert json.loads(found[1]) == list(CIVIDIS)


def of_image(query: int | None) -> Drawing:
    """3 × 4 patches after a class token; patch (1, 2) attends to (2, 0) and (0, 3)."""
    weights = np.full((1, 1, 13, 13), 1 / 13, np.float32)
    weights[0, 0, 7] = 0
    weights[0, 0, 7, [9, 4]] = 0.8, 0.2
    view = AttentionView(weights, image=np.full((30, 40, 3), 200, np.uint8))
    view.query = query
    return view.still()


def texts(drawing: Drawing) -> list[str]:
    return [part["content"] for kind, part in drawing.parts if kind == "text"]


def brightness(drawing: Drawing) -> np.ndarray:
    """Of the patches of the image, (3, 4)."""
    [image] = [part for kind, part in drawing.parts if kind == "map" and len(part["levels"]) == 30]
    shown = np.array([rgb(colour) for colour in image["palette"]])[image["levels"]]
    return np.asarray(shown.mean(-1).reshape(3, 10, 4, 10).mean((1, 3)))


def test_the_still_of_an_image_shows_where_the_chosen_patch_attends_to() -> None:
    drawing = of_image(7)
    light = brightness(drawing)
    assert light[2, 0] == pytest.approx(200, abs=1)
    assert light[0, 3] == pytest.approx(200 * (1 - SHADE / 2), abs=1)
    assert np.sort(light.ravel())[:10] == pytest.approx(200 * (1 - SHADE), abs=1)
    assert not [kind for kind, _ in drawing.parts if kind == "curve"]
    maps = [part for kind, part in drawing.parts if kind == "map"]
    [(x, y, wide, high)] = [part["box"] for part in maps if len(part["levels"]) == 30]
    assert wide / high == pytest.approx(4 / 3)
    frames = [part["box"] for kind, part in drawing.parts if kind == "frame"]
    assert any(np.allclose(one, (x + wide / 2, y + high / 3, wide / 4, high / 3)) for one in frames)
    assert "bright: what the framed patch attends to" in texts(drawing)


def test_without_a_query_it_shows_the_mean_of_all_and_a_class_token_has_no_place() -> None:
    light = brightness(of_image(None))
    assert light[2, 0] == light.max() > light[0, 0]
    assert "bright: what the queries on the mean attend to" in texts(of_image(None))
    assert "bright: what the query attends to" in texts(of_image(0))
