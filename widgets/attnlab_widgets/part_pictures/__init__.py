"""A picture of every page of the other shelves, one function for each role.

A feed-forward layer shows which hidden units or experts its tokens reach, a join how variance and
gradient change with the depth, a depth what the forward pass keeps, an objective what one example
asks, a compression a matrix before and after. Each is measured on a fresh module of the page, so a
page that is added has its picture without further work.
"""

import torch

from attnlab import catalog
from attnlab.catalog import remembered
from attnlab.core.card import Card
from attnlab.figures.svg import image
from attnlab.figures.theme import DARK, LIGHT, Theme
from attnlab_widgets.part_pictures import compress, depth, feed, join, objective
from attnlab_widgets.part_pictures.sketch import Sketch, claimed

ROLES = {
    "feed": feed.draw,
    "join": join.draw,
    "depth": depth.draw,
    "objective": objective.draw,
    "compress": compress.draw,
}
NEITHER = Theme(paper="none", panel="#8a929c26", ink="#8a929c", quiet="#8a929c", grid="#8a929c66")
"""Colours that can be seen on light and on dark pages."""
THUMBNAIL = 150
"""Pixels across."""
CAPTIONS = {
    "feed": "The pictures show which hidden units or experts the tokens of one text reach in a "
    "fresh layer.",
    "join": "The pictures show the variance of the stream and the norm of the gradient by layer, "
    "before training.",
    "depth": "The pictures show layers in the order in which they run; blue is what the forward "
    "pass keeps for the backward pass.",
    "objective": "The pictures show one text as the model reads it; below a token stands what it "
    "has to answer there.",
    "compress": "The pictures show one matrix before and after.",
}


def sketch(card: Card, theme: Theme = LIGHT) -> Sketch | None:
    """The picture of a page of another shelf; None of a card that mixes positions.

    Where the picture of its role cannot be drawn, it says what the card claims.
    """
    if card.role not in ROLES:
        return None
    try:
        return drawn(card.name, theme)
    except Exception:  # of whatever page: a table of cards is shown all the same
        return claimed(card, theme)


@remembered
def drawn(name: str, theme: Theme) -> Sketch:
    """The picture of the role of this page."""
    card = catalog.card(name)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        return ROLES[card.role](card, theme)


def as_html(card: Card) -> str:
    """The picture for a notebook, light and dark, with its words; "" where there is none."""
    light, dark = (sketch(card, theme) for theme in (LIGHT, DARK))
    if light is None or dark is None:
        return ""
    return image(light.svg(), light.words, dark=dark.svg())


def thumbnail(card: Card) -> str:
    """The picture without its letters, in colours for light and dark pages alike, for a table."""
    found = sketch(card, NEITHER)
    if found is None:
        return ""
    small = found.thumbnail().svg()
    return image(small, found.words).replace("<img ", f'<img width="{THUMBNAIL}" ', 1)
