"""The wall as a still picture of what is chosen, drawn in Python alone.

It reads the same bytes as the front end and follows its scale of colours (``lib/wall.js``): a
weight is compared with an even share of what its row may attend to.
"""

import re
import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.catalog import TITLES
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, HATCHING, SIGNED, THEMES, Theme, blend
from attnlab_widgets.wall.around import thumbnails
from attnlab_widgets.wall.bytes import decode

_TILE, _COLUMNS, _ROWS, _MARGIN, _GAP = 153, 6, 6, 12, 8  # more columns before more rows
_TOP, _HIGH, _MAP, _FINER = 64, 106, 78, 2
_PART = 380  # pixels of a page of another shelf
_BACK, _LINE = 255, 256  # of the palette, after its colours: the hatching of masked cells
_PITCH = 8
_MOST = 48  # tiles of a picture that is sharp within the bytes of a still

Levels = NDArray[np.int64]


def draw(wall: Any) -> Drawing:
    """The first tiles of the catalogue that pass the filter, in the chosen order."""
    dark = wall.theme == "dark"
    theme = THEMES["dark" if dark else "light"]
    if wall.shelf != "mechanisms":
        return _of_a_role(wall, theme)
    passing = arranged(wall)
    tiles = passing[:_MOST]
    columns = max(_COLUMNS, -(-len(tiles) // _ROWS))
    rows = -(-len(tiles) // columns)
    wide = 2 * _MARGIN + columns * (_TILE + _GAP) - _GAP
    drawing = Drawing(wide, _TOP + rows * (_HIGH + _GAP) + _MARGIN - _GAP, theme)
    tokens = wall._wall["tokens"]
    of_all = f"{len(tiles)} of " if len(tiles) < len(passing) else ""
    said = f"{of_all}{len(passing)} mechanisms on the same {len(tokens)} tokens"
    drawing.text(said, _MARGIN, 20, size=15)
    sentence = "".join(tokens).replace("␣", " ").strip()
    drawing.text(textwrap.shorten(sentence, 150, placeholder=" …"), _MARGIN, 44, quiet=True)
    for at, tile in enumerate(tiles):
        x = _MARGIN + at % columns * (_TILE + _GAP)
        y = _TOP + at // columns * (_HIGH + _GAP)
        _draw_tile(drawing, wall, tile, x, y, "dark" if dark else "light")
    return drawing


def _of_a_role(wall: Any, theme: Theme) -> Drawing:
    """The pages of another shelf, with their own pictures."""
    tiles = thumbnails(wall.shelf, wall.order, theme)[:_MOST]
    columns = 3
    rows = [tiles[at : at + columns] for at in range(0, len(tiles), columns)]
    heights = [26 + max(one.drawing.high for _, one in row) for row in rows]
    wide = 2 * _MARGIN + columns * (_PART + _GAP) - _GAP
    drawing = Drawing(wide, 40 + sum(heights) + _GAP * len(rows) + _MARGIN, theme)
    drawing.text(TITLES[wall.shelf], _MARGIN, 20, size=15)
    y = 40
    for row, high in zip(rows, heights, strict=True):
        for at, (card, one) in enumerate(row):
            x = _MARGIN + at * (_PART + _GAP)
            drawing.frame(x, y, _PART, high, theme.grid)
            drawing.text(f"{card.title}, {card.paper.year}", x + 8, y + 13, bold=True)
            drawing.put(one.drawing, x, y + 24)
        y += high + _GAP
    return drawing


def arranged(wall: Any) -> list[dict[str, Any]]:
    """The tiles that pass the filter, in the chosen order, as ``arranged`` in ``lib/wall.js``."""
    refused = {"causal": "never", "both sides": "always"}.get(wall.seeing, "")
    at = wall._wall["lengths"].index(wall.length)
    kept = [
        tile
        for tile in wall._wall["tiles"]
        if wall.family in ("", tile["family"])
        and tile["causal"] != refused
        and (tile["few"] or wall.seeing != "few")
    ]
    keys: dict[str, Any] = {
        "family": lambda tile: 0,
        "year": lambda tile: tile["year"],
        "cost": lambda tile: tile["time"][at],
        "name": lambda tile: tile["title"].casefold(),
    }
    return sorted(kept, key=keys[wall.order])


def _draw_tile(
    drawing: Drawing, wall: Any, tile: dict[str, Any], x: float, y: float, theme: str
) -> None:
    drawing.frame(x, y, _TILE, _HIGH, drawing.theme.grid)
    title = textwrap.shorten(re.sub(r"(: | \().*$", "", tile["title"]), 24, placeholder=" …")
    drawing.text(title, x + 6, y + 12)
    found = wall.map(tile["name"])
    if found is not None:
        levels, signed = pictured(*found)
        scale = SIGNED if signed else CIVIDIS
        palette = [blend(scale, i / 254) for i in range(255)] + list(HATCHING[theme])
        drawing.map(levels, palette, round(x + 6), round(y + 22), _MAP, _MAP)
    at = wall._wall["lengths"].index(wall.length)
    drawing.text(str(tile["year"]), x + _MAP + 12, y + 30, size=9, quiet=True)
    drawing.text(f"{short(tile['time'][at])} FLOPs", x + _MAP + 12, y + 46, size=9)


def pictured(weights: np.ndarray, masked: np.ndarray) -> tuple[Levels, bool]:
    """A map as pixels of the palette, masked cells hatched; and whether its weights have signs."""
    signed = bool((weights < 0).any())
    levels = np.where(masked, _BACK, levels_of(weights, masked, signed))
    side = _MAP * _FINER
    rows = np.arange(side) * levels.shape[0] // side
    columns = np.arange(side) * levels.shape[1] // side
    fine = levels[rows][:, columns]
    lines = np.add.outer(np.arange(side), np.arange(side)) % _PITCH < 2
    return np.where((fine == _BACK) & lines, _LINE, fine), signed


def levels_of(weights: np.ndarray, masked: np.ndarray, signed: bool) -> Levels:
    """Places on the scale of colours, 0 to 254."""
    if signed:
        largest = np.abs(weights).max() or 1
        share = np.sign(weights) * np.sqrt(np.abs(weights) / largest)
        return np.asarray(np.rint(127 + 127 * share).astype(np.int64))
    seen = np.maximum((~masked).sum(axis=-1, keepdims=True), 1)
    even = weights.sum(axis=-1, keepdims=True) / seen
    square = (weights / np.where(even > 0, even, 1)) ** 2
    return np.asarray(np.rint(254 * square / (2 + square)).astype(np.int64))


def short(number: float) -> str:
    """A number in three digits with its prefix, as ``short`` in ``lib/wall.js``."""
    names = ["", " k", " M", " G", " T", " P"]
    step = 0
    while number >= 999.5 and step < len(names) - 1:
        number, step = number / 1000, step + 1
    digits = 0 if step == 0 else min(2, max(0, 2 - int(np.floor(np.log10(number)))))
    return f"{number:.{digits}f}{names[step]}" + " " * (step == 0)


def one_map(wall: Any, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The chosen head of a mechanism, or the mean of all, and which cells are masked; None where
    there is no map."""
    header = wall._sets[wall._key()][name]
    if "why" in header:
        return None
    weights, masked = decode(wall._bytes, header)
    if wall.head is None or len(weights) == 1:
        return weights.mean(axis=0), np.asarray(masked.all(axis=0))
    return weights[wall.head], masked[wall.head]
