"""What the wall says of the other shelves: of each page its picture, claims, equation and code."""

from typing import Any

from attnlab.catalog import TITLES, cards, pages
from attnlab.core.card import Card
from attnlab.core.story import Story
from attnlab.figures.theme import Theme
from attnlab_widgets.part_pictures import sketch
from attnlab_widgets.part_pictures.sketch import Sketch
from attnlab_widgets.wall_cards import code_of, equation, lessons

SHELVES = ("mechanisms", *TITLES)
"""What the wall can show: the mechanisms on the sentence, or the pages of another role."""


def around() -> list[dict[str, Any]]:
    """All that the front end is told of the pages of the other shelves."""
    return [described(card) for card in cards() if card.role in TITLES]


def described(card: Card) -> dict[str, Any]:
    found = sketch(card)
    assert found is not None
    return {
        "name": card.name,
        "title": card.title,
        "role": card.role,
        "year": card.paper.year,
        "summary": Story(card.story or "").summary.capitalize(),
        "claims": card.claims.rows(),
        "forms": card.forms_text(),
        "departures": list(card.departures),
        "words": found.words,
        "picture": found.svg(),
        "crop": [found.drawing.wide, *found.crop()],
        "equation": equation(card),
        "demo": card.demo,
        "code": code_of(card),
        "paper": str(card.paper),
        "url": card.paper.url,
        "page": pages().get(card.name, "").replace(".", "/"),
        "lessons": lessons(card),
    }


def arranged(role: str, order: str) -> list[Card]:
    """The pages of one role, in the chosen order, as ``arrangedAround`` in ``lib/wall.js``."""
    kept = [card for card in cards() if card.role == role]
    keys: dict[str, Any] = {
        "year": lambda card: card.paper.year,
        "name": lambda card: card.title.casefold(),
    }
    return sorted(kept, key=keys.get(order, lambda card: 0))


def thumbnails(role: str, order: str, theme: Theme) -> list[tuple[Card, Sketch]]:
    """The pages of one role with their pictures for tiles."""
    found = [(card, sketch(card, theme)) for card in arranged(role, order)]
    return [(card, one.thumbnail()) for card, one in found if one is not None]
