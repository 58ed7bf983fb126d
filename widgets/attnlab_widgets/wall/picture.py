"""The wall as a still picture of what is chosen, drawn in Python alone.

It reads the same bytes as the front end and follows its scale of colours (``lib/wall.js``): the
square root of the weight, from 0 to 1.
"""

import re
import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.catalog import TITLES
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, HATCHING, SIGNED, THEMES, Theme, blend
from attnlab_widgets.legend import draw_untrained, draw_weights
from attnlab_widgets.wall.around import thumbnails
from attnlab_widgets.wall.bytes import decode

_TILE, _COLUMNS, _ROWS, _MARGIN, _GAP = 153, 6, 5, 12, 8  # more columns before more rows
_TOP, _HIGH, _MAP, _FINER = 88, 120, 78, 2
_PART = 380  # pixels of a page of another shelf
_BACK, _LINE, _PAPER = 255, 256, 257  # of the palette, after its colours: masked cells, only keys
_PITCH = 8
_MOST = 40  # tiles of a picture that is sharp within the bytes of a still

FIRST = "full"
"""What the others are compared with."""

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
    draw_weights(drawing, _MARGIN, 68, signed=True)
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
    """The tiles that pass the filter, full attention first, then in the chosen order, as
    ``arranged`` in ``lib/wall.js``."""
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
    return sorted(kept, key=lambda tile: (tile["name"] != FIRST, keys[wall.order](tile)))


def _draw_tile(
    drawing: Drawing, wall: Any, tile: dict[str, Any], x: float, y: float, theme: str
) -> None:
    drawing.frame(x, y, _TILE, _HIGH, drawing.theme.grid)
    title = re.sub(r"(: | \().*$", "", tile["title"])
    for at, line in enumerate(textwrap.wrap(title, 24)):
        drawing.text(line, x + 6, y + 11 + 13 * at, size=11)
    found = wall.map(tile["name"])
    if found is not None:
        levels, signed = pictured(*found)
        scale = SIGNED if signed else CIVIDIS
        palette = [blend(scale, i / 254) for i in range(255)]
        palette += [*HATCHING[theme], drawing.theme.paper]
        drawing.map(levels, palette, round(x + 6), round(y + 36), _MAP, _MAP)
    at = wall._wall["lengths"].index(wall.length)
    drawing.text(str(tile["year"]), x + _MAP + 12, y + 44, size=9, quiet=True)
    drawing.text(f"{short(tile['time'][at])} FLOPs", x + _MAP + 12, y + 58, size=9)
    random = wall.weights == "random" or tile["all_drawn"]
    if random or tile["drawn"]:
        draw_untrained(drawing, x + _MAP + 11, y + 36 + _MAP, in_part=not random)


def pictured(weights: np.ndarray, masked: np.ndarray) -> tuple[Levels, bool]:
    """A map as pixels of the palette, masked cells hatched, only keys framed; and whether its
    weights have signs."""
    signed = bool((weights < 0).any())
    levels = np.where(masked, _BACK, levels_of(weights, masked, signed))
    levels[only_keys(weights, masked)] = _PAPER
    side = _MAP * _FINER
    rows = np.arange(side) * levels.shape[0] // side
    columns = np.arange(side) * levels.shape[1] // side
    fine = levels[rows][:, columns]
    lines = np.add.outer(np.arange(side), np.arange(side)) % _PITCH < 2
    edges = np.logical_or.outer(_steps(rows), _steps(columns))
    framed = (fine == _PAPER) & edges
    return np.where((fine == _BACK) & lines | framed, _LINE, fine), signed


def _steps(cells: Levels) -> NDArray[np.bool_]:
    """Which pixels are the first or the last of their cell."""
    changes = np.diff(cells) != 0
    return np.concatenate((changes, [True])) | np.concatenate(([True], changes))


def only_keys(weights: np.ndarray, masked: np.ndarray) -> NDArray[np.bool_]:
    """The cells that are the only key of their query, with all of its weight: they cannot be other
    than 1, and stay out of the scale."""
    alone = ((~masked).sum(axis=-1, keepdims=True) == 1) & ~masked
    return np.asarray(alone & (np.abs(weights - 1) < 1e-3))


def levels_of(weights: np.ndarray, masked: np.ndarray, signed: bool) -> Levels:
    """Places on the scale of colours, 0 to 254: the square root of the weight, from 0 to 1; of a
    map with both signs, or beyond 1, to its largest."""
    largest = np.abs(np.where(only_keys(weights, masked), 0, weights)).max()
    top = largest if signed or largest > 1.005 else 1
    size = np.sqrt(np.minimum(np.abs(weights) / (top or 1), 1))
    levels = 127 + 127 * np.sign(weights) * size if signed else 254 * size
    return np.asarray(np.rint(levels).astype(np.int64))


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
