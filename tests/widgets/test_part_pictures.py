"""The pictures of the other shelves: one for every page, and each shows what its page does."""

import dataclasses
import inspect
import re
import xml.dom.minidom
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from attnlab_widgets import part_pictures
from attnlab_widgets.part_pictures import compress, depth, feed, join, objective
from torch import Tensor, nn

import attnlab
from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.probe import note
from attnlab.figures.layout import text_width
from attnlab.figures.theme import DARK, LIGHT, contrast
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch

PARTS = [card for name in catalog.SHELVES[1:] for card in catalog.shelf(name)]
named = pytest.mark.parametrize("card", PARTS, ids=lambda card: card.name)


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Registers a page of one's own, made from one of the shelf, for one test."""
    monkeypatch.setattr(catalog, "_OTHERS", {})

    def like(name: str, build: Any) -> Card:
        card = dataclasses.replace(attnlab.card(name), name="mine", build=build, aliases=())
        return attnlab.register(card)

    yield like
    monkeypatch.undo()
    for each in catalog._REMEMBERED:
        each.cache_clear()


@named
def test_every_page_of_the_other_shelves_has_a_picture_with_words(card: Card) -> None:
    found = part_pictures.drawn(card.name, LIGHT)
    xml.dom.minidom.parseString(found.svg())
    assert len(found.svg()) < 16_000, "a table of many shows all of them"
    assert re.match(r"[A-Z0-9].*\.$", found.words)
    assert "nan" not in found.words
    drawing = found.drawing
    for kind, part in drawing.parts:
        if kind == "text":
            wide = 0.85 * text_width(part["content"], part.get("size", 12))
            x, y = part["at"]
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[part.get("anchor", "start")]
            assert left >= 0, part["content"]
            assert left + wide <= drawing.wide, part["content"]
            assert 0 < y < drawing.high, part["content"]
        if "box" in part:
            x, y, w, h = part["box"]
            assert x >= 0
            assert y >= 0
            assert x + w <= drawing.wide
            assert y + h <= drawing.high
    small = found.thumbnail()
    assert "<text" not in small.svg()
    assert len(small.drawing.parts) > 1
    assert small.drawing.high < drawing.high
    assert found.key < len(drawing.parts)


@named
def test_pictures_are_light_and_dark_and_the_same_each_time(card: Card) -> None:
    light, dark = (part_pictures.sketch(card, theme) for theme in (LIGHT, DARK))
    assert light is not None
    assert dark is not None
    assert light.words == dark.words
    assert LIGHT.paper in light.svg()
    assert LIGHT.paper not in dark.svg()
    assert DARK.paper in dark.svg()
    state = torch.get_rng_state()
    inspect.unwrap(part_pictures.drawn)(card.name, LIGHT)
    assert torch.equal(torch.get_rng_state(), state), "the reader's generator stays"


def test_a_card_shows_its_picture_and_a_table_all_of_them() -> None:
    page = attnlab.cards()._repr_html_()
    for card in PARTS:
        shown = card._repr_html_()
        assert shown.count("data:image/svg+xml;base64,") == 2, "light, and dark as a rule"
        found = part_pictures.sketch(card)
        assert found is not None
        assert f'alt="{found.words.split(" (")[0]}' in page
    assert "data:image/svg+xml" not in attnlab.card("full")._repr_html_()
    assert part_pictures.sketch(attnlab.card("full")) is None
    for colour in (part_pictures.NEITHER.ink, part_pictures.NEITHER.quiet):
        assert min(contrast(colour, LIGHT.paper), contrast(colour, DARK.paper)) > 3


# ---- feed-forward layers


def test_equal_tokens_reach_equal_hidden_units() -> None:
    found = feed.look(attnlab.card("mlp"))
    assert found.taken is None
    hidden = found.units
    assert hidden.shape == (len(feed.TEXT), 4 * feed.DIM)
    for i, j in feed._pairs():
        np.testing.assert_allclose(hidden[i], hidden[j], rtol=1e-4, atol=1e-5)
    assert "Equal tokens reach the same units" in part_pictures.drawn("mlp", LIGHT).words


class Experts(nn.Module):
    """Two choices a token among three experts; the last token finds no place."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.contract = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        taken = torch.arange(x.shape[1])[:, None].add(torch.arange(2)) % 3
        taken[-1] = -1
        note("router", torch.zeros(*x.shape[:2], 3))
        note("experts", taken[None])
        note("dropped", taken[None] < 0)
        out: Tensor = self.contract(x)
        return out


def test_experts_are_drawn_where_a_page_notes_them(mine: Any) -> None:
    card = mine("mlp", Experts)
    seen = feed.look(card)
    assert seen.taken is not None
    assert seen.taken.shape == (len(feed.TEXT), 2)
    assert seen.experts == 3
    found = part_pictures.drawn(card.name, LIGHT)
    texts = [part["content"] for kind, part in found.drawing.parts if kind == "text"]
    assert "dropped" in texts
    assert sum(text.startswith("expert ") for text in texts) == 3
    curves = [part for kind, part in found.drawing.parts if kind == "curve"]
    assert len(curves) == 2 * (len(feed.TEXT) - 1)
    assert "; 2 choices find no room; 1 token is taken by none." in found.words


def test_a_memory_is_drawn_by_the_values_that_are_read() -> None:
    seen = feed.look(attnlab.card("product_keys"))
    assert seen.taken is None
    assert seen.what == "values of a memory"
    top: Any = attnlab.build("product_keys", dim=feed.DIM)
    assert ((seen.units > 0).sum(1) <= top.top * top.queries).all()
    np.testing.assert_allclose(seen.units.sum(1), top.queries, rtol=1e-5)


def test_a_page_that_cannot_be_drawn_says_what_it_claims(mine: Any) -> None:
    card = mine("mlp", nn.Flatten)  # takes no dim
    found = part_pictures.sketch(card)
    assert found is not None
    assert card.claims.rows()[0][1] in found.words
    assert card._repr_html_().count("data:image/svg+xml;base64,") == 2
    assert "<text" in found.thumbnail().svg()


# ---- joins


@pytest.mark.parametrize("name", ["pre_norm", "post_norm"])
def test_the_curves_of_a_join_are_its_profile(name: str) -> None:
    profile = join.look(name)
    found = part_pictures.drawn(name, LIGHT)
    lines = [part["points"] for kind, part in found.drawing.parts if kind == "line"]
    curves = [points for points in lines if len(points) == join.LAYERS]
    assert len(curves) == 2
    for points, values in zip(curves, profile, strict=True):
        heights = np.array([y for _, y in points])
        falls = np.diff(values.log().numpy())
        same = np.abs(falls) > 0.05  # more than the tenth of a pixel to which points are rounded
        assert (np.sign(-np.diff(heights)) == np.sign(falls))[same].all()
    assert f"{float(profile.variance[-1]):.3g}" in found.words


# ---- depth


def test_what_is_kept_is_seen_where_it_is_kept() -> None:
    layers = list(range(depth.LAYERS))
    for name, inside, places in (
        ("plain", depth.LAYERS, []),
        ("checkpointed", 0, layers),
        ("reversible", 0, [depth.LAYERS]),
    ):
        book = depth.look(name)
        assert [call.layer for call in book.calls] == layers, name
        assert not any(call.half for call in book.calls)
        assert sum(each > 0 for each in book.inside) == inside, name
        assert [at for at, each in enumerate(book.before) if each] == places, name


class Again(nn.Module):
    """The first layer, each time again."""

    reads_branches = False

    def forward(self, x: Tensor, layers: Sequence[Any]) -> Tensor:
        for _ in range(14):
            x = layers[0](x)
        return x


def test_the_same_box_comes_again_where_weights_are_shared(mine: Any) -> None:
    found = part_pictures.drawn(mine("plain", Again).name, LIGHT)
    curves = [part for kind, part in found.drawing.parts if kind == "curve"]
    assert len(curves) == depth.MOST - 1
    texts = [part["content"] for kind, part in found.drawing.parts if kind == "text"]
    assert texts.count("1") == depth.MOST
    assert "and so on: 14 calls in all" in texts
    assert "14 calls of 1 set of weights" in found.words


def test_layers_that_share_all_their_weights_are_said_to() -> None:
    found = part_pictures.drawn("shared", LIGHT)
    assert f"{depth.LAYERS} calls of 1 set of weights" in found.words
    assert "of weights" not in part_pictures.drawn("plain", LIGHT).words


def test_rounds_through_the_same_layers_are_one_round_with_a_way_back() -> None:
    book = depth.look("equilibrium")
    assert [call.layer for call in book.calls] == list(range(depth.LAYERS))
    assert book.rounds > 1
    assert not any(book.inside)
    found = part_pictures.drawn("equilibrium", LIGHT)
    assert f"{book.rounds} rounds through the same layers" in found.words
    assert sum(kind == "curve" for kind, _ in found.drawing.parts) == 1
    assert depth.look("plain").rounds == 1


def test_layers_that_are_left_out_have_empty_places() -> None:
    book = depth.look("layer_drop")
    skipped = book.skipped()
    assert skipped
    assert len(book.calls) + len(skipped) == depth.LAYERS
    found = part_pictures.drawn("layer_drop", LIGHT)
    assert re.search(r"in [1-5] calls?, [1-5] (is|are) left out", found.words)
    dashed = [part for kind, part in found.drawing.parts if kind == "line" and part["dash"]]
    assert len(dashed) == len(skipped)
    assert depth.look("plain").skipped() == []


def test_sublayers_in_another_order_are_drawn_in_it() -> None:
    book = depth.look("sandwich_order")
    n = depth.LAYERS
    assert "".join(call.half for call in book.calls) == "s" + "sf" * (n - 1) + "f"
    texts = [
        part["content"]
        for kind, part in part_pictures.drawn("sandwich_order", LIGHT).drawing.parts
        if kind == "text"
    ]
    assert texts.count("s") == texts.count("f") == n


# ---- objectives


class Hiding(nn.Module):
    """One place hidden, one replaced, one kept: all three are asked."""

    def prepare(self, batch: Any, generator: Any = None) -> Batch:
        inputs, targets = batch.inputs.clone(), torch.full_like(batch.inputs, UNSCORED)
        targets[0, [1, 3, 5]] = batch.inputs[0, [1, 3, 5]]
        inputs[0, 1] = 99
        inputs[0, 3] = (inputs[0, 3] + 1) % 5
        return Batch(inputs, targets, batch.padding)


def test_hidden_replaced_kept_and_scored_places_differ(mine: Any) -> None:
    found = part_pictures.drawn(mine("next_token", Hiding).name, LIGHT)
    assert "1 is hidden and 1 replaced; 3 are scored" in found.words
    marks = [part for kind, part in found.drawing.parts if kind == "patch"]
    assert len(marks) == 3
    boxes = [part for kind, part in found.drawing.parts if kind == "box"]
    assert len({(part["fill"], part["outline"]) for part in boxes}) == 3
    words = objective.TEXT.split()
    texts = [part["content"] for kind, part in found.drawing.parts if kind == "text"]
    assert [text for text in texts if text in words].count(words[1]) == words[:-1].count(words[1])


def test_what_is_cut_out_of_a_text_is_marked_by_signs() -> None:
    found = objective.look(attnlab.card("span_corruption"))
    assert {place.kind for place in found.source} == {objective.SHOWN, objective.SIGN}
    assert found.hidden == len(objective.TEXT.split()) - 1 - sum(
        place.kind == objective.SHOWN for place in found.source
    )
    answers = [place.answer for place in found.asked]
    assert all(answers)
    assert len({*answers} - {*objective.TEXT.split()}) == 2, "the sign of the span, and the end"


def test_an_answer_for_the_whole_text_is_said_once() -> None:
    found = objective.look(attnlab.card("sentence_order"))
    assert found.whole in ("class 0", "class 1")
    assert not any(place.answer for place in found.asked)


@pytest.mark.parametrize(("name", "texts"), [("contrastive", 2), ("matching", 2), ("specter", 3)])
def test_texts_that_are_compared_stand_one_below_the_other(name: str, texts: int) -> None:
    found = objective.look(attnlab.card(name))
    assert [part.label for part in found.parts] == [f"text {i + 1}" for i in range(texts)]
    assert [place for part in found.parts for place in part.places] == found.asked
    words = part_pictures.drawn(name, LIGHT).words
    assert f"It is read as text 1, text 2{', text 3' * (texts == 3)}; asked of all of it" in words


def test_pieces_of_a_text_are_cut_where_the_objective_cuts_them() -> None:
    text = objective.TEXT.split()[:-1]
    found = objective.look(attnlab.card("dino"))
    pieces = [[place.word for place in part.places] for part in found.parts]
    assert len(pieces) == 6
    assert all(
        any(text[at : at + len(piece)] == piece for at in range(len(text))) for piece in pieces
    )
    assert min(map(len, pieces[:2])) > max(map(len, pieces[2:]))
    assert found.whole == "10 answers"


# ---- compressions


def test_the_matrix_after_is_what_the_smaller_module_multiplies_by() -> None:
    torch.manual_seed(0)
    before, after, stored = compress.look(attnlab.card("magnitude_pruning"))
    assert (after == 0).sum() == before.size // 2
    kept = after != 0
    np.testing.assert_allclose(after[kept], before[kept], rtol=1e-5, atol=1e-6)
    assert np.abs(before[~kept]).max() <= np.abs(before[kept]).min()
    assert stored == (4 * before.size, before.size // 8 + 2 * before.size)
