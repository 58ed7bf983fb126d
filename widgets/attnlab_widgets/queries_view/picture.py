"""The still picture of QueriesView: the image, the chosen query's map, and all queries' maps."""

import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, THEMES, blend
from attnlab_widgets.legend import draw_weights
from attnlab_widgets.picture_image import indexed
from attnlab_widgets.queries_view import words
from attnlab_widgets.queries_view.study import MASKED, STEPS, Study

_WIDE, _MARGIN, _LEFT, _MOST = 952, 24, 400, 190
_PALETTE = [blend(CIVIDIS, at / STEPS) for at in range(STEPS + 1)]


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    found, grid = widget.found, widget.found.grid
    codes = found.chosen(widget.moment, widget.layer, widget.head)
    said = textwrap.wrap(widget.description(), 122)
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 28 + 18 * len(said)
    high, wide = found.image.pixels.shape[:2]
    scale = min(_LEFT / wide, _MOST / high)
    size = (scale * wide, scale * high)
    drawing.text("The image", _MARGIN, top, bold=True)
    drawing.map(*indexed(found.image.pixels), _MARGIN, top + 12, *size)
    low = top + 12 + size[1] + 20
    drawing.text(f"What query {widget.query} reads", _MARGIN, low, bold=True)
    for upper in (top + 12, low + 12):
        if upper > top + 12:
            _map(drawing, codes[widget.query], found, _MARGIN, upper, *size)
        if widget.patch >= 0:
            row, column = divmod(widget.patch, grid[1])
            cell = size[0] / grid[1], size[1] / grid[0]
            drawing.frame(_MARGIN + column * cell[0], upper + row * cell[1], *cell, SERIES[1], 3)
    ends = [low + 12 + size[1], _tiles(drawing, widget, codes, top, size[1] / size[0])]
    draw_weights(drawing, _MARGIN, max(ends) + 20, largest=words.weight(found.largest))
    drawing.high = round(max(ends) + 36)
    return drawing


def columns_for(queries: int) -> int:
    """How many maps stand beside each other."""
    return 2 if queries <= 6 else 4 if queries <= 24 else 8


def _tiles(drawing: Drawing, widget: Any, codes: np.ndarray, top: float, form: float) -> float:
    found = widget.found
    begin, across = _MARGIN + _LEFT + 32, columns_for(widget.found.queries)
    room = (_WIDE - _MARGIN - begin - 10 * (across - 1)) / across
    down = -(-found.queries // across)
    wide = min(room, (420 / down - 24) / form)
    scale = f"√weight, 0 to {words.weight(found.largest)}"
    drawing.text(f"All queries: {scale}", begin, top, bold=True)
    most = words.readers(codes, widget.patch)[0] if widget.patch >= 0 else None
    for query in range(found.queries):
        row, column = divmod(query, across)
        x, y = begin + column * (wide + 10), top + 12 + row * (wide * form + 24)
        _map(drawing, codes[query], found, x, y, wide, wide * form)
        if query == widget.query:
            drawing.frame(x - 2, y - 2, wide + 4, wide * form + 4, drawing.theme.ink, 2)
        name = str(query) if across == 8 else f"query {query}"
        if widget.patch >= 0:
            name += f": {words.weight(codes[query, widget.patch])}"
        bold = query in (most, widget.query)
        drawing.text(name, x, y + wide * form + 11, size=11, bold=bold, quiet=not bold)
    return top + 12 + down * (wide * form + 24)


def _map(
    drawing: Drawing, codes: np.ndarray, found: Study, x: float, y: float, wide: float, high: float
) -> None:
    cells = codes.reshape(found.grid)
    masked = cells == MASKED
    shares = np.where(masked, 0, cells) / found.largest
    drawing.map(np.rint(shares * STEPS).astype(int), _PALETTE, x, y, wide, high)
    if masked.any():
        drawing.hatch(masked, x, y, wide, high)
