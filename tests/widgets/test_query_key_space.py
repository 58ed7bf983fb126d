"""The query-key space in Python: its bytes, what may be set, what is refused, the still picture."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.base import STATIC, packed
from attnlab_widgets.query_key_space import COLOURS, QueryKeySpace
from attnlab_widgets.query_key_space.bytes import KEPT, box_of
from attnlab_widgets.query_key_space.colours import FEW, OTHERS, RAMPS, colouring, kinds
from attnlab_widgets.query_key_space.example import maps_of, points_of, tokens_of
from attnlab_widgets.query_key_space.picture import _counts, unpacked

from attnlab.lens.head_kinds import find_heads
from attnlab.lens.query_key.collect import collect
from attnlab.lens.query_key.maps import Maps, project
from attnlab.lens.query_key.placing import placer
from attnlab.pretrained import load
from tests.widgets.stored import assert_fresh, write

TOKENS = tokens_of(5, 7)
POINTS = points_of(TOKENS, 2, 3)
MAPS = maps_of(POINTS)


def changed(maps: Maps, at: tuple[int, int], **parts: Any) -> Maps:
    """The maps with one head's map changed."""
    return replace(maps, heads={**maps.heads, at: replace(maps[at], **parts)})


def with_layer(maps: Maps, **parts: Any) -> Maps:
    """The maps with their first layer of points changed."""
    layers = (replace(maps.points[0], **parts), *maps.points.layers[1:])
    return replace(maps, points=replace(maps.points, layers=layers))


# ---- bytes


@pytest.mark.parametrize("dimensions", [2, 3])
def test_coordinates_come_back_within_a_step(dimensions: int) -> None:
    maps = maps_of(POINTS, dimensions=dimensions)
    widget = QueryKeySpace(maps)
    for one in widget._space["maps"][0]["heads"]:
        head = maps[tuple(one["is"])]
        both = np.concatenate([head.queries, head.keys])
        middle, half = box_of([head.queries, head.keys])
        found = unpacked(widget._data, one["at"], len(both), dimensions) * half + middle
        np.testing.assert_allclose(found, both, atol=half / 1023)


def test_a_head_is_inflated_on_its_own() -> None:
    """Every block is a zlib stream of its own, and the blocks fill the data without a gap."""
    widget = QueryKeySpace(MAPS)
    places = sorted(blocks_in(widget._space))
    ends = np.cumsum([size for _, size in places])
    assert [start for start, _ in places] == [0, *ends[:-1]]
    assert ends[-1] == len(widget._data)


def blocks_in(found: Any) -> list[tuple[int, int]]:
    """Every "at" of a block in the description."""
    if isinstance(found, list):
        return [place for one in found for place in blocks_in(one)]
    if not isinstance(found, dict):
        return []
    own = [tuple(found["at"])] if "at" in found else []
    return own + [place for one in found.values() for place in blocks_in(one)]


def test_a_space_of_sixteen_heads_is_small() -> None:
    """16 heads of 4,000 points in a notebook: below 700 kB with the bundle, as base 64."""
    tokens = tokens_of(100, 20)
    widget = QueryKeySpace(maps_of(points_of(tokens, 4, 4)))
    bundle = (STATIC / "query_key_space.js").stat().st_size
    assert len(b64encode(widget._data)) + len(json.dumps(widget._space)) + bundle < 400_000


# ---- what may be set


def test_state_is_validated() -> None:
    widget = QueryKeySpace(MAPS)
    widget.layer, widget.head = 1, 2
    widget.selected = ["query", 34]
    with pytest.raises(
        traitlets.TraitError, match=r"`layer` should be one that was mapped, 0 or 1"
    ):
        widget.layer = 2
    with pytest.raises(traitlets.TraitError, match=r"`head` should be one .* 0 … 2, got 7"):
        widget.head = 7
    with pytest.raises(traitlets.TraitError, match=r'\["query", row\] with a row from 0 to 34'):
        widget.selected = ["query", 35]
    with pytest.raises(traitlets.TraitError, match="`shown` should be from 0 to 0"):
        widget.shown = 1
    with pytest.raises(traitlets.TraitError, match="`order` should be one of layer, entropy"):
        widget.order = "size"
    with pytest.raises(traitlets.TraitError, match="only where the tokens have labels"):
        widget.colour = "class"
    with pytest.raises(traitlets.TraitError, match="only where `place` was given"):
        widget.sentence = "the cat"
    assert (widget.layer, widget.head, widget.selected) == (1, 2, ["query", 34])


def test_a_head_that_is_on_no_map_gives_way_to_the_first_of_its_layer() -> None:
    some = {at: MAPS[at] for at in ((0, 0), (0, 2), (1, 1))}
    widget = QueryKeySpace(replace(MAPS, heads=some))
    widget.head = 2
    widget.layer = 1
    assert (widget.layer, widget.head) == (1, 1)


def test_the_last_step_of_a_film_is_shown_first() -> None:
    film = QueryKeySpace({0: MAPS, 100: maps_of(points_of(TOKENS, 2, 3, seed=1), blur=0.1)})
    assert film.shown == 1
    assert [one["name"] for one in film._space["maps"]] == ["0", "100"]
    assert len(film._space["points"]) == 2
    assert len(film._space["tokens"]) == 1


def test_a_slider_of_numbers_is_one_of_training_steps() -> None:
    assert QueryKeySpace({0: MAPS, 100: MAPS})._space["film"] == "Training step"
    named = QueryKeySpace({"as it is": MAPS, "shuffled": MAPS})
    assert named._space["film"] == "Map"
    assert named.which == "shuffled"
    assert QueryKeySpace([MAPS])._space["film"] == ""


def test_the_steps_of_a_film_share_a_box_and_maps_to_choose_from_do_not() -> None:
    wider = replace(
        MAPS,
        heads={at: replace(m, queries=3 * m.queries, keys=3 * m.keys) for at, m in MAPS.items()},
    )

    def extent(widget: QueryKeySpace, which: int) -> float:
        place = widget._space["maps"][which]["heads"][0]["at"]
        return float(np.abs(unpacked(widget._data, place, 70, 2)).max())

    film, several = QueryKeySpace({1: MAPS, 2: wider}), QueryKeySpace([MAPS, wider])
    assert extent(film, 0) < 0.6
    assert extent(several, 0) == pytest.approx(1, abs=1e-3)


def test_what_the_finder_of_heads_found_is_written_on_them_and_orders_them() -> None:
    weights = torch.eye(7).roll(1, 0).tril().expand(40, 3, 7, 7).clone()  # to the token before
    weights[:, :, 0, 0] = 1
    weights[:, 1] = torch.eye(7)
    tokens = torch.arange(40 * 7).reshape(40, 7)
    kinds = find_heads({"0": weights, "1": weights}, tokens)
    widget = QueryKeySpace(MAPS, kinds=kinds)
    assert widget._space["kinds"]["0,1"] == "same token"
    assert widget._space["kinds"]["1,2"] == "previous token"
    assert {"induction", "positional", "entropy"} <= set(widget._space["statistics"])
    widget.order = "kind"
    widget.order = "induction"
    with pytest.raises(traitlets.TraitError, match="`order` should be one of layer, entropy"):
        QueryKeySpace(MAPS).order = "kind"


# ---- a sentence of one's own


def test_a_sentence_is_placed_in_the_boxes_of_the_map() -> None:
    typed = maps_of(points_of(tokens_of(1, 4), 2, 3))
    widget = QueryKeySpace(MAPS, place=lambda text: typed)
    assert widget._typing == "kernel"
    widget.sentence = "the cat sat on"
    found = widget._placed
    assert [token[0] for token in found["tokens"]] == ["the", "cat", "sat", "on"]
    middle, half = box_of([MAPS[1, 2].queries, MAPS[1, 2].keys])
    wanted = (typed[1, 2].queries - middle) / half
    np.testing.assert_allclose(found["heads"]["1,2"]["queries"], wanted, atol=1e-4)
    row = found["heads"]["0,0"]["strongest"][2]
    assert row[0] == [1, pytest.approx(0.5, abs=0.03)]
    widget.sentence = ""
    assert widget._placed == {}


def test_a_sentence_is_placed_by_the_shipped_model() -> None:
    model, task = load("documentation")
    ids = task.batch("validation", 3, seed=0).inputs[:, :24]
    maps = project(collect(model, [ids], task.tokens), "pca", heads=[(0, 1), (3, 0)])
    widget = QueryKeySpace(maps, place=placer(model, maps, task.encode, task.tokens))
    widget.sentence = "def f(x):"
    assert "".join(token[0] for token in widget._placed["tokens"]) == "def␣f(x):"
    assert set(widget._placed["heads"]) == {"0,1", "3,0"}
    queries = np.array(widget._placed["heads"]["3,0"]["queries"])
    assert queries.shape == (len(widget._placed["tokens"]), 2)
    assert np.isfinite(queries).all()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda text: None, "should return the maps of the typed text"),
        (lambda text: maps_of(points_of(tokens_of(1, 600), 2, 3)), "600 tokens, more than 512"),
        (
            lambda text: maps_of(points_of(tokens_of(1, 4), 2, 3), dimensions=3),
            r"should be \(4, 2\)",
        ),
    ],
)
def test_what_cannot_be_placed_is_told_on_the_page(place: Any, words: str) -> None:
    widget = QueryKeySpace(MAPS, place=place)
    widget.sentence = "words"
    assert re.search(words, widget._placed["error"])


def test_a_saved_page_cannot_place(tmp_path: Path) -> None:
    widget = QueryKeySpace(MAPS, place=lambda text: MAPS)
    assert '"_typing":"page"' in widget.save_html(tmp_path / "space.html").read_text("utf-8")
    page = QueryKeySpace(MAPS).save_html(tmp_path / "space.html").read_text("utf-8")
    assert '"_typing":""' in page


# ---- bad input


OTHER = maps_of(points_of(tokens_of(5, 8), 2, 3))
NAN = MAPS[1, 2].queries.copy()
NAN[3, 0] = NAN[5, 1] = np.nan
STRANGERS = np.where(POINTS[0].strongest >= 0, POINTS[0].strongest * 0 + 34, -1)
REFUSED = [
    (3, r"`maps` should be a list, got 3"),
    ([3], "project returns.*, got int"),
    ([], "`maps` is empty"),
    ({}, "`maps` is empty"),
    (replace(MAPS, heads={}), "`maps` holds no head"),
    ([MAPS, OTHER], "UMAP 2-D: layer 0 has other tokens .* a list should hold maps of the same"),
    ({0: MAPS, 9: OTHER}, "training step 9: layer 0 has other tokens .* on the same batches"),
    ([MAPS, replace(MAPS, heads={(0, 0): MAPS[0, 0]})], "other heads are"),
    (changed(MAPS, (1, 2), queries=NAN), "layer 1, head 2: 2 of 35 points have .* NaN"),
    (changed(MAPS, (0, 1), keys=MAPS[0, 1].keys[:9]), r"should be \(35, 2\), .* got \(9, 2\)"),
    (with_layer(MAPS, strongest=STRANGERS), "layer 0: `strongest` pairs .* another sequence"),
]


@pytest.mark.parametrize(("maps", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_bad_maps_are_refused(maps: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"(?s){words}"):
        QueryKeySpace(maps)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"place": 3}, "`place` should be a function"),
        ({"kinds": [1]}, r"`kinds` should be .* or map \(layer, head\)"),
        ({"kinds": {(7, 7): "x"}}, r"`kinds` names the head \(7, 7\), which is on no map"),
    ],
)
def test_bad_arguments_are_refused(more: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        QueryKeySpace(MAPS, **more)


def test_hostile_and_endless_tokens_are_text(tmp_path: Path) -> None:
    texts = ("</script><script>alert(1)</script>", "x" * 10_000, *TOKENS.texts[2:])
    tokens = replace(TOKENS, texts=texts)
    widget = QueryKeySpace(maps_of(points_of(tokens, 1, 1)))
    page = widget.save_html(tmp_path / "space.html").read_text("utf-8")
    assert "<script>alert(1)" not in page
    assert "x" * 200 not in page
    assert "(10,000 characters)" in page
    assert "<script>" not in still_of(widget)


# ---- without widgets


def still_of(widget: QueryKeySpace) -> str:
    return widget.still().svg(repr(widget))


@pytest.mark.parametrize("view", ["all", "one"])
def test_the_still_picture_names_head_and_faithfulness(view: str, tmp_path: Path) -> None:
    widget = QueryKeySpace(MAPS)
    widget.view, widget.layer, widget.head = view, 1, 2
    html = still_of(widget)
    assert html.startswith("<svg")
    drawn = " ".join(re.findall(r"<text[^>]*>([^<]*)<", html))
    assert "62 % are among its nearest keys" in drawn
    assert "ayer 1" in drawn
    assert len(html) < 120_000
    assert widget.save_png(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert widget.save_svg(tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    with pytest.raises(ValueError, match=r"should end in \.svg"):
        widget.save_svg(tmp_path / "a.png")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_still_picture_follows_the_chosen_colour(theme: str) -> None:
    """As the page colours them: by a few names, or by shades of a scale."""
    points = points_of(tokens_of(labels=np.arange(12 * 18) % 3))
    widget = QueryKeySpace(maps_of(points), theme=theme)
    maps = widget._space["maps"][0]
    head, drawn = maps["heads"][0], {}
    tokens = points.layers[0].query_tokens
    for colour in COLOURS:
        widget.colour = colour
        found = colouring(widget, maps, head, theme)
        assert [len(one) for one in found.places] == list(_counts(widget, maps, head))
        assert max(one.max() for one in found.places) < len(found.palette)
        drawn[colour] = widget.still().png(64)
        assert len(drawn[colour]) < 60_000
        names = " ".join(name for name, _ in found.legend)
        words = {"position": "low position", "frequency": "rare to frequent", "kind": "word",
                 "norm": "queries: low norm", "value_norm": "keys: low norm of the value",
                 "modulo": "4", "class": "2", "side": "query key"}  # fmt: skip
        assert words.get(colour, "others") in names
    assert len(set(drawn.values())) == len(COLOURS)
    widget.colour = "modulo"
    assert (colouring(widget, maps, head, theme).places[0] == tokens.position % 5).all()
    widget.colour = "class"
    assert (colouring(widget, maps, head, theme).places[0] == np.asarray(tokens.labels)).all()
    widget.colour = "position"
    shades = colouring(widget, maps, head, theme).places[0]
    assert np.corrcoef(shades, tokens.position)[0, 1] > 0.99


def test_the_still_has_the_colours_and_kinds_of_the_page() -> None:
    text = (STATIC.parents[1] / "src/lib/colouring.js").read_text("utf-8")
    for name in ("light", "dark"):
        for colour in (*FEW[name], OTHERS[name], *RAMPS[name][0], *RAMPS[name][1]):
            assert colour in text
    words = [" the", "ing", " 3.5", ",", "\n", "<pad>", " a", "2", "dog"]
    texts = ["".join(word).replace(" ", "␣") for word in words]
    one = SimpleNamespace(text=np.arange(9), sequence=np.array([0, 0, 0, 0, 0, 0, 1, 1, 2]))
    assert kinds(texts, one).tolist() == [0, 1, 2, 3, 4, 5, 0, 2, 0]


def test_its_text_says_what_is_seen() -> None:
    said = repr(QueryKeySpace(MAPS))
    assert said.startswith("QueryKeySpace: 6 heads, UMAP 2-D; layer 0, head 0. This map shows")


# ---- the page reads what is written here


def cases() -> dict[str, Any]:
    """A small space with what is in it, for widgets/test/space.test.js."""
    widget = QueryKeySpace(MAPS)
    layer = POINTS[1]
    weights = np.asarray(layer.weights[0], np.float64)[:, :KEPT]
    sure = (layer.strongest[0, :, :KEPT] >= 0) & (weights >= weights[:, :1] / 4)
    places = unpacked(widget._data, widget._space["maps"][0]["heads"][3]["at"], 70, 2)
    return {
        "state": packed({"_space": widget._space, "_data": widget._data}),
        "texts": list(TOKENS.texts),
        "sequence": TOKENS.sequence.tolist(),
        "position": TOKENS.position.tolist(),
        "head": [1, 0],
        "places": np.round(places, 5).tolist(),
        "strongest": np.where(sure, layer.strongest[0, :, :KEPT], -1).tolist(),
        "weights": np.where(sure, weights, 0).round(4).tolist(),
    }


def test_what_the_page_is_compared_with_is_fresh() -> None:
    assert_fresh("space.json", cases(), 2e-4)  # rounded to four digits


if __name__ == "__main__":
    write("space.json", cases())
