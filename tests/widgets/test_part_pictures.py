"""The pictures of the other shelves: one for every page, and each shows what its page does."""

import dataclasses
import re
import xml.dom.minidom
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from attnlab_widgets import part_pictures
from attnlab_widgets.part_pictures import compress, depth, feed, join, objective
from torch import Tensor, nn

import attnlab
from attnlab import catalog
from attnlab.core.card import Card, letters
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
    found = part_pictures.sketch(card)
    assert found is not None, f"no picture for the role {card.role!r}"
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
    part_pictures._drawn.__wrapped__(card.name, LIGHT)
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
    hidden, chosen, _ = feed.look(attnlab.card("mlp"))
    assert chosen is None
    assert hidden.shape == (len(feed.TEXT), 4 * feed.DIM)
    for i, j in feed._pairs():
        np.testing.assert_allclose(hidden[i], hidden[j], rtol=1e-4, atol=1e-5)
    found = part_pictures.sketch(attnlab.card("mlp"))
    assert found is not None
    assert "Equal tokens reach the same units" in found.words


class Experts(nn.Module):
    """Two choices a token among three experts; the last token finds no place."""

    experts = 3

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.contract = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.arange(x.shape[1])[:, None].add(torch.arange(2)) % 3
        chosen[-1] = -1
        note("chosen", chosen[None])
        out: Tensor = self.contract(x)
        return out


def test_experts_are_drawn_where_a_page_notes_them(mine: Any) -> None:
    card = mine("mlp", Experts)
    _, chosen, experts = feed.look(card)
    assert chosen is not None
    assert chosen.shape == (len(feed.TEXT), 2)
    assert experts == 3
    found = part_pictures.sketch(card)
    assert found is not None
    texts = [part["content"] for kind, part in found.drawing.parts if kind == "text"]
    assert "dropped" in texts
    assert sum(text.startswith("expert ") for text in texts) == 3
    curves = [part for kind, part in found.drawing.parts if kind == "curve"]
    assert len(curves) == 2 * (len(feed.TEXT) - 1)
    assert "; 1 is dropped" in found.words


# ---- joins


@pytest.mark.parametrize("name", ["pre_norm", "post_norm"])
def test_the_curves_of_a_join_end_where_its_card_claims(name: str) -> None:
    torch.manual_seed(0)
    found, claims, (L,) = join.profile(name), attnlab.card(name).claims, letters("L")
    variance, gradient = (
        float(sympy.sympify(claimed).subs(L, join.SUBLAYERS))
        for claimed in (claims.variance, claims.gradient)  # type: ignore[union-attr]
    )
    assert found.variance[-1] == pytest.approx(variance, rel=0.2)
    assert found.gradient[0] == pytest.approx(gradient, rel=0.3)
    assert found.gradient[-1] == 1


# ---- depth


def test_what_is_kept_is_seen_where_it_is_kept() -> None:
    layers = list(range(depth.LAYERS))
    for name, inside, places in (
        ("plain", depth.LAYERS, []),
        ("checkpointed", 0, layers),
        ("reversible", 0, [depth.LAYERS]),
    ):
        book = depth.look(name)
        assert book.calls == layers, name
        assert sum(each > 0 for each in book.inside) == inside, name
        assert [at for at, each in enumerate(book.before) if each] == places, name


class Again(nn.Module):
    """The first layer, each time again."""

    reads_branches = False

    def forward(self, x: Tensor, layers: Sequence[Any]) -> Tensor:
        for _ in range(12):
            x = layers[0](x)
        return x


def test_the_same_box_comes_again_where_weights_are_shared(mine: Any) -> None:
    found = part_pictures.sketch(mine("plain", Again))
    assert found is not None
    curves = [part for kind, part in found.drawing.parts if kind == "curve"]
    assert len(curves) == depth.MOST - 1
    texts = [part["content"] for kind, part in found.drawing.parts if kind == "text"]
    assert texts.count("1") == depth.MOST
    assert "and so on: 12 calls in all" in texts
    assert "12 calls of 1 set of weights" in found.words


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
    found = part_pictures.sketch(mine("next_token", Hiding))
    assert found is not None
    assert "1 is hidden and 1 replaced; 3 are scored" in found.words
    marks = [part for kind, part in found.drawing.parts if kind == "patch"]
    assert len(marks) == 3
    boxes = [part for kind, part in found.drawing.parts if kind == "box"]
    assert len({(part["fill"], part["outline"]) for part in boxes}) == 3
    words = objective.TEXT.split()
    texts = [part["content"] for kind, part in found.drawing.parts if kind == "text"]
    assert [text for text in texts if text in words].count(words[1]) == words[:-1].count(words[1])


# ---- compressions


def test_the_matrix_after_is_what_the_smaller_module_multiplies_by() -> None:
    torch.manual_seed(0)
    before, after, stored = compress.look(attnlab.card("magnitude_pruning"))
    assert (after == 0).sum() == before.size // 2
    kept = after != 0
    np.testing.assert_allclose(after[kept], before[kept], rtol=1e-5, atol=1e-6)
    assert np.abs(before[~kept]).max() <= np.abs(before[kept]).min()
    assert stored == (4 * before.size, before.size // 8 + 2 * before.size)
