"""The still picture of a query-key space: all heads or one, drawn in Python alone.

It reads the same bytes as the front end.
"""

import zlib
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import DARK, SERIES, THEMES
from attnlab_widgets.query_key_space.bytes import STEPS
from attnlab_widgets.query_key_space.colours import Colouring, colouring

_WIDE, _TOP, _MARGIN = 760, 64, 24
_FINE = 1.5  # pixels of the points' image per unit


def draw(widget: Any) -> Drawing:
    space = widget._space
    maps = space["maps"][widget.shown]
    theme = THEMES["dark" if widget.theme == "dark" else "light"]
    if widget.view == "one":
        return _one(widget, maps, theme)
    return _all(widget, maps, theme)


def _one(widget: Any, maps: dict[str, Any], theme: Any) -> Drawing:
    head = _shown(widget, maps)
    side = 480
    drawing = Drawing(_WIDE, _TOP + side + 64, theme)
    drawing.text(
        f"Layer {widget.layer} · head {widget.head} · {widget.which}", _MARGIN, 24, size=15
    )
    _legend(drawing, widget, maps, 46)
    left = (_WIDE - side) / 2
    _cloud(drawing, widget, maps, head, (left, _TOP, side, side), 3)
    _said(drawing, head["said"], _TOP + side + 20)
    return drawing


def _all(widget: Any, maps: dict[str, Any], theme: Any) -> Drawing:
    heads = maps["heads"]
    rows = sorted({one["is"][0] for one in heads})
    columns = sorted({one["is"][1] for one in heads})
    side = min(160.0, (_WIDE - 2 * _MARGIN - 32) / len(columns))
    high = _TOP + 20 + len(rows) * side + 56
    drawing = Drawing(_WIDE, round(high), theme)
    drawing.text(f"Queries and keys of every head · {widget.which}", _MARGIN, 24, size=15)
    _legend(drawing, widget, maps, 46)
    for at, head in enumerate(columns):
        x = _MARGIN + 32 + (at + 0.5) * side
        drawing.text(
            f"head {head}" if side > 50 else str(head),
            x,
            _TOP + 10,
            anchor="middle",
            quiet=True,
            size=11,
        )
    for at, layer in enumerate(rows):
        y = _TOP + 20 + (at + 0.5) * side
        drawing.text(f"L{layer}", _MARGIN + 24, y, anchor="end", quiet=True, size=11)
    for one in heads:
        x = _MARGIN + 32 + columns.index(one["is"][1]) * side
        y = _TOP + 20 + rows.index(one["is"][0]) * side
        _cloud(drawing, widget, maps, one, (x + 2, y + 2, side - 4, side - 4), 1)
    shown = _shown(widget, maps)
    _said(drawing, f"Layer {widget.layer}, head {widget.head}: {shown['said']}", high - 36)
    return drawing


def _said(drawing: Drawing, sentence: str, y: float) -> None:
    """In two lines of text."""
    words, lines = sentence.split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 108:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    for at, line in enumerate(lines):
        drawing.text(line, _MARGIN, y + 18 * at, quiet=True)


def _legend(drawing: Drawing, widget: Any, maps: dict[str, Any], y: float) -> None:
    """Shapes for both sides, then what the colours stand for."""
    theme, found = drawing.theme, _coloured(drawing, widget, maps, _shown(widget, maps))
    sided = widget.colour == "side"
    x = float(_MARGIN)
    for name, colour, mark in (
        ("query", found.palette[0] if sided else theme.quiet, disc(9)),
        ("key", found.palette[1] if sided else theme.quiet, triangle(9)),
    ):
        drawing.map(mark.astype(int), [theme.paper, colour], x, y - 5, 9, 9)
        drawing.text(name, x + 16, y)
        x += 80
    for name, colour in () if sided else found.legend:
        wide = 34 + 7 * len(name)
        if x + wide > _WIDE:
            break
        drawing.box(x, y - 5, 10, 10, colour)
        drawing.text(name, x + 16, y)
        x += wide


def _shown(widget: Any, maps: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in maps["heads"] if one["is"] == [widget.layer, widget.head])


def _coloured(
    drawing: Drawing, widget: Any, maps: dict[str, Any], head: dict[str, Any]
) -> Colouring:
    return colouring(widget, maps, head, "dark" if drawing.theme == DARK else "light")


def _cloud(
    drawing: Drawing,
    widget: Any,
    maps: dict[str, Any],
    head: dict[str, Any],
    box: tuple[float, float, float, float],
    size: int,
) -> None:
    """Queries (discs) and keys (triangles) as one image, laid over each other in turn."""
    x, y, wide, high = box
    counts = _counts(widget, maps, head)
    places = unpacked(widget._data, head["at"], sum(counts), maps["dimensions"])[:, :2]
    across, down = round(wide * _FINE), round(high * _FINE)
    margin = 4 * size
    scale = min(across, down) / 2 - margin
    levels = np.zeros((down, across), np.uint8)
    found = _coloured(drawing, widget, maps, head)
    colours = 1 + np.concatenate(found.places)
    order = np.random.default_rng(0).permutation(sum(counts))
    marks = (disc(2 * size + 1), triangle(2 * size + 3))
    for row in order:
        mark = marks[int(row >= counts[0])]
        half = len(mark) // 2
        column = round(across / 2 + places[row, 0] * scale) - half
        line = round(down / 2 - places[row, 1] * scale) - half
        window = levels[line : line + len(mark), column : column + len(mark)]
        window[mark] = colours[row]
    palette = [drawing.theme.panel, *found.palette]
    drawing.map(levels, palette, x, y, wide, high)
    chosen = head["is"] == [widget.layer, widget.head] and size == 1
    drawing.frame(x, y, wide, high, SERIES[0] if chosen else drawing.theme.grid, 2 if chosen else 1)


def _counts(widget: Any, maps: dict[str, Any], head: dict[str, Any]) -> tuple[int, int]:
    layer = widget._space["points"][maps["points"]]["layers"][head["is"][0]]
    sets = widget._space["tokens"]
    return sets[layer["q"]]["n"], sets[layer["k"]]["n"]


def unpacked(data: bytes, place: list[int], count: int, dimensions: int) -> np.ndarray:
    """(points, dimensions) from -1 to 1: the queries, then the keys."""
    start, size = place
    low, high = np.frombuffer(zlib.decompress(data[start : start + size]), np.uint8).reshape(2, -1)
    whole = low.astype(np.int32) + 256 * high.astype(np.int32)
    return ((whole - STEPS - 1) / STEPS).reshape(dimensions, count).T


def disc(side: int) -> np.ndarray:
    at = np.arange(side) - (side - 1) / 2
    return np.asarray(at[:, None] ** 2 + at**2 <= (side / 2) ** 2)


def triangle(side: int) -> np.ndarray:
    at = np.arange(side)
    return np.asarray(np.abs(at - (side - 1) / 2) <= (at[:, None] + 1) / 2)
