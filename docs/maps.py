"""The implied map of each mechanism: the wall's, and for position schemes what places alone do."""

import functools
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from attnlab_widgets.wall.picture import levels_of
from PIL import Image

import attnlab
from attnlab.core.card import Card
from attnlab.figures.theme import CIVIDIS, rgb
from attnlab.models.positions import makes_vectors, schemes

TEXT = "The keys of the dictionary are strings, and the values are lists of numbers."
PLACES = 24
TITLE = "What each position takes from each other one"


@dataclass(frozen=True)
class Implied:
    """A map (n, m), which of its cells are masked, the names of its rows, and what it shows."""

    weights: np.ndarray
    masked: np.ndarray
    rows: list[str]
    caption: str


@functools.cache
def wall() -> Any:
    """Every mechanism on one sentence; also the first page."""
    return attnlab.wall(TEXT)


@functools.cache
def implied(name: str) -> Implied | None:
    """None where nothing mixes."""
    card = attnlab.card(name)
    return _on_the_wall(card) if card.mixes else _of_places(card)


def _on_the_wall(card: Card) -> Implied | None:
    found = wall().map(card.name)
    if found is None:
        return None
    tile = next(tile for tile in wall()._wall["tiles"] if tile["name"] == card.name)
    under = f", with {tile['options']}" if tile["options"] else ""
    own = "; what is the mechanism's own is untrained" if tile["drawn"] else ""
    weights, masked = found
    if tile["all_drawn"]:
        return Implied(
            weights,
            masked,
            _rows(),
            f"Rows are queries, columns keys; an untrained layer{under}: it has no projections "
            "like those of attention.",
        )
    return Implied(
        weights,
        masked,
        _rows(),
        "Rows are queries, columns keys; the mean of the heads of a layer with the projections of "
        f"full attention in a small trained model{under}{own}.",
    )


def _rows() -> list[str]:
    return [token.strip() or "␣" for token in wall()._wall["tokens"]]


def _of_places(card: Card) -> Implied | None:
    """Full attention to one token that is repeated, so that only the places differ."""
    if card.name not in schemes() or makes_vectors(card):
        return None
    if card.structure is not None or card.role == "attend":
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = attnlab.TinyTransformer(8, dim=32, layers=1, heads=4, positions=card.name).eval()
    try:
        with attnlab.watch(model) as seen, torch.no_grad():
            model(torch.zeros(1, PLACES, dtype=torch.long))
    except TypeError:  # a scheme that is told a structure
        return None
    return Implied(
        seen[0].weights[0].mean(0).numpy(),
        ~np.tri(PLACES, dtype=bool),
        [str(place) for place in range(PLACES)],
        "Full attention of a fresh small model to one token, repeated: only the places differ. "
        "The mean of its heads; it sees the past alone.",
    )


def small(found: Implied) -> bytes:
    """One pixel a cell, for a picture that the browser enlarges; masked cells are transparent."""
    signed = bool((found.weights < 0).any())
    levels = levels_of(found.weights, found.masked, signed) / 254
    stops = np.array([rgb(colour) for colour in CIVIDIS])
    along = np.linspace(0, 1, len(stops))
    channels = [np.interp(levels, along, stops[:, channel]) for channel in range(3)]
    seen = np.where(found.masked, 0, 255)
    pixels = np.stack([*channels, seen], axis=-1).round().astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()
