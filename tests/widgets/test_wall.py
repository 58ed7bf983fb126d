"""The wall in Python: a tile for every mechanism, maps that are the model's, refusals."""

import base64
import dataclasses
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets import wall as wall_module
from attnlab_widgets import wall_cards
from attnlab_widgets.wall import MODEL, Wall, wall
from attnlab_widgets.wall.bytes import decode, encode
from attnlab_widgets.wall.picture import arranged, levels_of, only_keys, pictured
from attnlab_widgets.wall_cards import FEW

import attnlab
from attnlab import pretrained
from attnlab.figures.drawing import Drawing
from attnlab.lens import side_by_side
from attnlab.measure.count import count

TEXT = "If the object is a string, the method returns the string."
ONLY = ("axial", "bigbird", "full", "performer")
MIXING = [card.name for card in attnlab.cards() if card.mixes]


@pytest.fixture(scope="module")
def shown() -> Wall:
    return wall(TEXT)


@pytest.fixture
def fresh() -> Wall:
    return wall("A list of the keys.", only=ONLY)


def test_every_mechanism_that_mixes_has_a_tile_with_a_map(shown: Wall) -> None:
    assert [tile["name"] for tile in shown._wall["tiles"]] == MIXING
    for name in MIXING:
        found = shown.map(name)
        assert found is not None, name
        assert len(found[0]) == len(shown._wall["tokens"])
    assert repr(shown) == f"<Wall: {len(MIXING)} mechanisms on {len(shown._wall['tokens'])} tokens>"


def test_a_wall_of_a_few_has_their_tiles_and_maps_alone(fresh: Wall, shown: Wall) -> None:
    assert [tile["name"] for tile in fresh._wall["tiles"]] == [m for m in MIXING if m in ONLY]
    assert {*fresh._sets[fresh._key()]} == {*ONLY}
    assert len(fresh._data) < len(shown._data) / 4


def test_it_is_reached_from_the_top() -> None:
    assert attnlab.wall is wall
    assert "wall" in attnlab.__all__
    assert "wall" in dir(attnlab)


def test_a_new_mechanism_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    new = dataclasses.replace(attnlab.card("full"), name="brand_new", title="Brand new")
    builds = {"brand_new": "full"}
    monkeypatch.setattr(side_by_side, "cards", lambda: [*attnlab.cards(), new])
    build = side_by_side.build
    monkeypatch.setattr(side_by_side, "build", lambda n, **o: build(builds.get(n, n), **o))
    monkeypatch.setattr(wall_cards, "pages", lambda: {**PAGES, "brand_new": PAGES["full"]})
    made = wall("A list of the keys.")
    assert made._wall["tiles"][-1]["title"] == "Brand new"
    np.testing.assert_array_equal(made.map("brand_new")[0], made.map("full")[0])  # type: ignore[index]


PAGES = attnlab.catalog.pages()


def test_the_other_shelves_are_told_when_they_are_looked_at(fresh: Wall) -> None:
    parts = [card for card in attnlab.cards() if card.role in attnlab.catalog.TITLES]
    first = fresh.still()
    assert fresh.shelf == "mechanisms"
    assert fresh._around == b"", "no byte of a notebook is spent on what nobody looks at"
    fresh.shelf = "join"
    told = json.loads(zlib.decompress(fresh._around))
    assert [page["name"] for page in told] == [card.name for card in parts]
    assert all(page["picture"].startswith("<svg") and page["claims"] for page in told)
    assert {page["name"]: page["demo"] for page in told} == {c.name: c.demo for c in parts}
    joins = [card for card in parts if card.role == "join"]
    drawn = fresh.still()
    texts = [part["content"] for kind, part in drawn.parts if kind == "text"]
    assert {f"{card.title}, {card.paper.year}" for card in joins} <= set(texts)
    assert drawn.parts != first.parts
    fresh.opened = joins[0].name
    with pytest.raises(traitlets.TraitError, match="shelf"):
        fresh.shelf = "attic"
    fresh.shelf, fresh.opened = "mechanisms", ""


def test_a_page_of_another_shelf_appears_by_itself(
    fresh: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnlab.catalog, "_OTHERS", {})
    new = dataclasses.replace(attnlab.card("mlp"), name="my_layer", title="Mine", aliases=())
    attnlab.register(new)
    try:
        fresh.shelf = "feed"
        told = json.loads(zlib.decompress(fresh._around))
        assert told[-1]["title"] == "Mine"
    finally:
        monkeypatch.undo()
        for each in attnlab.catalog._REMEMBERED:
            each.cache_clear()


def test_the_trained_map_of_full_attention_is_that_of_the_model(shown: Wall) -> None:
    model, task = pretrained.load(MODEL)
    ids = task.encode(TEXT)
    with attnlab.watch(model) as seen:
        model(ids[None])
    assert shown.causal, "as the layer was trained"
    try:
        for head in range(4):
            shown.head = head
            weights, masked = shown.map("full")  # type: ignore[misc]
            np.testing.assert_allclose(weights, seen[1].weights[0, head], atol=0.005)
            assert not masked[np.tril_indices(len(ids))].any()
            assert masked[np.triu_indices(len(ids), 1)].all()
    finally:
        shown.head = None


def test_bytes_are_read_back_within_their_error() -> None:
    generator = torch.Generator().manual_seed(0)
    for signs in (1, -1):
        weights = torch.rand(2, 5, 7, generator=generator) ** 4
        weights[..., ::2] *= signs
        weights[:, 2, 3] = 0
        found = side_by_side.Map(weights, weights == 0, True, "")
        data, header = encode(found)
        assert header["signed"] == (signs < 0)
        assert len(data) % 4 == 0
        read, masked = decode(b"skip" + data, {**header, "at": 4})
        assert np.array_equal(masked, found.masked)
        scale = weights.abs().amax(-1, keepdim=True).numpy()
        levels = 127 if signs < 0 else 254
        bound = np.sqrt(np.abs(weights.numpy()) * scale) / levels + scale / (4 * levels**2) + 1e-6
        assert (np.abs(read - weights.numpy()) <= bound).all()


def test_two_walls_are_the_same_to_the_byte(fresh: Wall) -> None:
    again = wall("A list of the keys.", only=ONLY)
    assert again._data == fresh._data
    assert again._wall == fresh._wall


def test_what_is_chosen_is_computed_once_and_sent_tile_by_tile(fresh: Wall) -> None:
    sent = []
    fresh.send = lambda content, buffers: sent.append((content, buffers))  # type: ignore[method-assign]
    fresh.weights = "random"
    names = [tile["name"] for tile in fresh._wall["tiles"]]
    assert [content["name"] for content, _ in sent] == names
    header, data = sent[0][0], sent[0][1][0]
    read, _ = decode(data, {**header, "at": 0})
    np.testing.assert_array_equal(read.mean(0), fresh.map(names[0])[0])  # type: ignore[index]
    fresh.weights = "borrowed"
    fresh.weights = "random"
    assert len(sent) == len(names)


def test_a_prefix_has_maps_of_its_own_and_lengths_beyond_keep_them(shown: Wall) -> None:
    n = len(shown._wall["tokens"])
    assert shown._wall["lengths"][-1] == 65_536
    whole = {name: shown.map(name) for name in ("full", "bigbird")}
    shown.length = 8
    try:
        assert shown.map("full")[0].shape == (8, 8)  # type: ignore[index]
        same = {
            name: np.allclose(shown.map(name)[0], before[0][:8, :8], atol=1e-3)  # type: ignore[index]
            for name, before in whole.items()
        }
        assert same == {"full": True, "bigbird": False}, "one sees the past alone, one both sides"
        shown.length = 65_536
        assert shown.map("full")[0].shape == (n, n)  # type: ignore[index]
    finally:
        shown.length = n


def test_costs_are_those_of_the_card(shown: Wall) -> None:
    lengths = shown._wall["lengths"]
    tiles = {tile["name"]: tile for tile in shown._wall["tiles"]}
    full = [2 * 4 * n * n * 64 for n in lengths]
    np.testing.assert_allclose(tiles["full"]["time"], full, rtol=1e-3)
    window = attnlab.card("longformer").small_options["window"]
    band = [2 * 4 * n * (window + 1) * 64 for n in lengths]
    np.testing.assert_allclose(tiles["longformer"]["time"], band, rtol=1e-3)
    assert tiles["longformer"]["time_usual"] != tiles["longformer"]["time"]
    assert tiles["longformer"]["time_order"] == "n"
    assert tiles["full"]["time_order"] == "n²"


ALL_PAIRS = (
    *("full", "multi_query", "flash", "linear", "performer", "linformer", "shaw", "relative"),
    *("synthesizer", "long_t5"),
)
PATTERNS = (*("axial", "bigbird", "etc", "image_transformer", "longformer", "sparse_transformer"),)


@pytest.mark.parametrize("name", ALL_PAIRS)
def test_costs_are_what_is_counted_where_no_form_computes_masked_pairs(
    shown: Wall, name: str
) -> None:
    """The FLOPs of the layer without its projections, at 64 tokens."""
    layer = next(each for each in side_by_side.layers(128, 4) if each.card.name == name)
    linear: list[int] = []

    def book(part: torch.nn.Linear, args: tuple[torch.Tensor], _: torch.Tensor) -> None:
        linear.append(2 * args[0].numel() * part.out_features)

    parts = [part for part in layer.module.modules() if isinstance(part, torch.nn.Linear)]
    x = torch.randn(1, 64, 128)
    layer.module(x)
    for part in parts:
        part.register_forward_hook(book)  # type: ignore[arg-type]
    counted = count(layer.module, x).flops - sum(linear)
    tile = next(tile for tile in shown._wall["tiles"] if tile["name"] == name)
    at = shown._wall["lengths"].index(64)
    assert counted == pytest.approx(tile["time"][at], rel=0.03)


@pytest.mark.parametrize("name", PATTERNS)
def test_costs_of_a_fixed_pattern_are_its_pairs(shown: Wall, name: str) -> None:
    """4 FLOPs a pair and number, at 256 tokens; the kernels also compute what their blocks mask."""
    layer = next(each for each in side_by_side.layers(128, 4) if each.card.name == name)
    pattern = layer.module.options.allowed(4).sized(256)  # type: ignore[operator, union-attr]
    i, j = torch.arange(256)[:, None], torch.arange(256)
    pairs = pattern.allows(i, j) & ((j <= i) | torch.tensor(layer.card.causal != "always"))
    tile = next(tile for tile in shown._wall["tiles"] if tile["name"] == name)
    at = shown._wall["lengths"].index(256)
    counted = 4 * 128 * float(pairs.sum()) / (pairs.numel() / 256**2)
    assert tile["time"][at] == pytest.approx(counted, rel=0.03)


def test_what_an_opened_tile_shows(shown: Wall) -> None:
    tiles = {tile["name"]: tile for tile in shown._wall["tiles"]}
    for name, tile in tiles.items():
        assert re.match(r"(@\S+\n)?def (\w+_)?naive\(", tile["code"]), name
        assert tile["gives_up"], name
        assert tile["equation"], name
    paths = [lesson["path"] for lesson in tiles["sparse_transformer"]["lessons"]]
    assert paths[0] == "10_sparse_transformer.ipynb"
    assert tiles["linformer"]["url"] == "https://arxiv.org/abs/2006.04768"


def test_the_lessons_that_name_a_mechanism_most_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "from attnlab.mechanisms.fixed import axial, bigbird\n"
    found = [
        (Path(f"{number}.ipynb"), {"question": f"lesson {number}"}, line * number + "build('x')")
        for number in range(5)
    ]
    monkeypatch.setattr(wall_cards, "_lessons", lambda: found)
    best = wall_cards.lessons(attnlab.card("axial"))
    assert [one["path"] for one in best] == ["4.ipynb", "3.ipynb", "2.ipynb"]
    assert wall_cards.lessons(attnlab.card("full")) == []


def test_a_mechanism_without_a_map_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(layer: side_by_side.Layer, x: torch.Tensor) -> side_by_side.Map:
        if layer.card.name == "axial":
            raise ValueError("five tokens make no grid")
        return side_by_side.map_of(layer, x)

    monkeypatch.setattr(wall_module, "map_of", refuse)
    made = wall("A list of the keys.", only=ONLY)
    assert made.map("axial") is None
    (sets,) = made._sets.values()
    assert sets["axial"] == {"why": "five tokens make no grid", "at": 0}
    assert made.map("bigbird") is not None
    made.still()


def test_a_saved_page_holds_all_that_can_be_chosen(fresh: Wall) -> None:
    before = len(fresh._data)
    fresh.page("wall")
    n = len(fresh._wall["tokens"])
    assert len(fresh._data) > before
    assert set(json.loads(zlib.decompress(fresh._headers))) == {
        f"{weights} {seen} {n}" for weights in ("borrowed", "random") for seen in ("both", "causal")
    }


def maps_of(drawing: Drawing) -> list[Any]:
    """The maps of the tiles, without the colours of the legend."""
    square = (78, 78)
    return [p for kind, p in drawing.parts if kind == "map" and p["box"][2:] == square]


def test_the_picture_has_a_map_for_each_tile(shown: Wall) -> None:
    from PIL import Image

    drawing = shown.still()
    maps = maps_of(drawing)
    assert len(maps) == min(40, len(MIXING))
    assert any((part["levels"] == 256).any() for part in maps), "masked cells are hatched"
    words = [part["content"] for kind, part in drawing.parts if kind == "text"]
    tokens = len(shown._wall["tokens"])
    assert words[0] == f"40 of {len(MIXING)} mechanisms on the same {tokens} tokens"
    tiles = arranged(shown)[:40]
    joined = "".join(words).replace(" ", "")  # a title may go on in a second line
    titles = [re.sub(r"(: | \().*$", "", tile["title"]).replace(" ", "") for tile in tiles]
    assert all(title in joined for title in titles), "none is cut"
    assert words.count("untrained") == sum(bool(tile["drawn"]) for tile in tiles)
    assert {"masked", "weight 0", "its only key: always 1"} <= set(words)
    bundle, _ = shown._repr_mimebundle_()
    picture = base64.b64decode(bundle["image/png"])
    assert Image.open(io.BytesIO(picture)).width == 2 * drawing.wide, "sharp within its bytes"
    shown.seeing = "both sides"
    try:
        fewer = maps_of(shown.still())
        said = next(part["content"] for kind, part in shown.still().parts if kind == "text")
    finally:
        shown.seeing = "all"
    shown.seeing = "few"
    try:
        few = maps_of(shown.still())
    finally:
        shown.seeing = "all"
    assert len(few) == len(FEW) == 8
    able = [card for card in attnlab.cards() if card.mixes and card.causal != "always"]
    assert len(fewer) == min(40, len(able))
    assert f"of {len(able)} mechanisms" in said, "what the filter leaves, and how many are shown"


def test_colours_are_the_square_root_of_the_weight_and_the_only_key_is_framed() -> None:
    weights = np.array([[1, 0], [0.25, 0.49]])
    masked = np.array([[False, True], [False, False]])
    np.testing.assert_array_equal(levels_of(weights, masked, signed=False)[1], [127, 178])
    np.testing.assert_array_equal(only_keys(weights, masked), [[True, False], [False, False]])
    levels, signed = pictured(weights, masked)
    own = levels[: len(levels) // 2, : len(levels) // 2]
    assert (own[1:-1, 1:-1] == 257).all(), "paper"
    assert (own[[0, -1]] == 256).all(), "a frame"
    assert not signed
    assert not only_keys(0.9 * weights, masked).any(), "less than all of it says something"
    large = levels_of(np.array([[4, 1]]), np.array([[False, False]]), signed=False)
    np.testing.assert_array_equal(large, [[254, 127]])


def test_order_and_filter(shown: Wall) -> None:
    first, *others = arranged(shown)
    assert first["name"] == "full"
    years = [tile["year"] for tile in others]
    assert years == sorted(years)
    shown.order, shown.family = "cost", "fixed"
    try:
        tiles = arranged(shown)
        at = shown._wall["lengths"].index(shown.length)
        costs = [tile["time"][at] for tile in tiles]
        assert costs == sorted(costs)
        assert {tile["family"] for tile in tiles} == {"fixed"}
    finally:
        shown.order, shown.family = "year", ""


def test_a_long_text_is_cut_and_says_so() -> None:
    made = wall("The keys of the dictionary are strings. " * 20, only=["full"])
    assert len(made._wall["tokens"]) == 64
    assert made._wall["cut"] > 0


@pytest.mark.parametrize(
    ("text", "options", "kind", "words"),
    [
        (["a", "b"], {}, TypeError, "should be a sentence as a string"),
        ("", {}, ValueError, "empty"),
        ("A", {}, ValueError, "at least two tokens"),
        (TEXT, {"only": ["ful"]}, ValueError, "did you mean 'full'"),
        (TEXT, {"only": []}, ValueError, "`only` should name at least one mechanism"),
        (TEXT, {"only": "full"}, TypeError, "`only` should be a list, got 'full'"),
        (TEXT, {"layer": 4}, ValueError, "`layer` should be from 0 to 3"),
        (TEXT, {"layer": 1.5}, TypeError, "layer"),
        (TEXT, {"theme": "blue"}, traitlets.TraitError, "theme"),
    ],
)
def test_refusals(text: object, options: dict[str, object], kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        wall(text, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("length", 33, "`length` should be one of 8, "),
        ("head", 4, "None .the mean. or from 0 to 3"),
        ("family", "nothing", "one of convolution, dense, "),
        ("opened", "ful", "one of "),
        ("weights", "both", "weights"),
    ],
)
def test_traits_refuse(shown: Wall, name: str, value: object, words: str) -> None:
    before = getattr(shown, name)
    with pytest.raises(traitlets.TraitError, match=words):
        setattr(shown, name, value)
    assert getattr(shown, name) == before
    with pytest.raises(ValueError, match="did you mean 'full'"):
        shown.map("ful")
