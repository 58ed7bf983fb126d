"""The still picture of LongRangeUse: the curves, and the text with its far part tinted."""

import math
import textwrap
from typing import Any

import numpy as np

from attnlab.figures.curves import spaced
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, SIGNED, THEMES, blend

_WIDE, _MARGIN, _LEFT, _RIGHT = 952, 20, 64, 96
_CHART, _HIGH, _LINE, _LETTER = 420, 260, 19, 6.7
_DASHES = ("", "7 3", "2 3", "8 3 2 3", "12 3", "4 2")
_ROWS = 13


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state; of a long text the end."""
    theme = THEMES[widget.theme]
    said = textwrap.wrap(widget.description(), 134)
    top = 40 + 18 * len(said)
    drawing = Drawing(_WIDE, top + _HIGH + 36, theme)
    drawing.text("Whose loss changes when the far context is changed?", _MARGIN, 24, bold=True,
                 size=14)  # fmt: skip
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 46 + 18 * at, quiet=True)
    _chart(drawing, widget, theme, top + 12)
    _text(drawing, widget, theme, _CHART + 70, top + 12)
    return drawing


def _chart(drawing: Drawing, widget: Any, theme: Any, top: float) -> None:
    curves = {name: widget.curve(name) for name in widget.names}
    values = [value for curve in curves.values() for _, value, _ in curve if not math.isnan(value)]
    low, high = min(0.0, *values), max(0.0, *values)
    high += (high - low or 1) * 0.08
    first, end = (math.log2(widget.distances[at]) for at in (0, -1))

    def place(distance: int, value: float) -> tuple[float, float]:
        along = (math.log2(distance) - first) / (end - first or 1)
        return _LEFT + (_CHART - _LEFT - _RIGHT + 60) * along, (
            top + _HIGH - 30 - (_HIGH - 50) * (value - low) / (high - low)
        )

    far_below = low < -0.06 * high  # else its number would stand on that of zero
    for value in (low, 0.0, high) if far_below else (0.0, high):
        (x, y), (right, _) = (place(widget.distances[at], value) for at in (0, -1))
        drawing.line([(x, y), (right, y)], theme.grid)
        drawing.text(f"{value:+.2f}" if value else "0", x - 8, y + 4, anchor="end", size=11,
                     quiet=True)  # fmt: skip
    for distance in widget.distances:
        x, y = place(distance, low)
        drawing.text(f"{distance}", x, y + 16, anchor="middle", size=11, quiet=True)
    x, y = place(widget.distance, low)
    drawing.line([(x, y), (x, place(widget.distance, high)[1])], theme.quiet, 1, "2 3")
    ends: dict[str, tuple[float, float]] = {}
    colours = dict(zip(curves, (*SERIES, theme.ink), strict=False))
    for dash, (name, curve) in zip(_DASHES, curves.items(), strict=False):
        points = [place(d, value) for d, value, _ in curve if not math.isnan(value)]
        if points:
            drawing.line(points, colours[name], 2, dash)
            ends[name] = points[-1]
    # A name stands above the numbers of the axis.
    heights = spaced([y - top for _, y in ends.values()], 13, _HIGH - 30)
    for (name, (x, _)), y in zip(ends.items(), heights, strict=True):
        drawing.text(name, x + 6, top + y + 4, size=11, colour=colours[name])
    drawing.text("distance from which on the text is changed (tokens)", _LEFT, top + _HIGH + 6,
                 size=11, quiet=True)  # fmt: skip
    drawing.text("change of the loss (nats)", _MARGIN, top, size=11, quiet=True)


def _text(drawing: Drawing, widget: Any, theme: Any, left: float, top: float) -> None:
    texts, n, last = widget._size
    ids = np.frombuffer(widget._tokens, "<u2").reshape(texts, n)[widget.text]
    study = widget.study
    at = widget.distances.index(widget.distance), widget.perturbations.index(widget.perturbation)
    change = study.differences[at][widget.text].tolist()
    largest = max(map(abs, change)) or 1.0
    far = n - last - widget.distance
    rows: list[list[tuple[int, float, float]]] = [[]]
    x = 0.0
    for i, token in enumerate(ids):
        wide = _LETTER * max(1, len(widget._texts[token])) + 3
        if x + wide > _WIDE - _MARGIN - left:
            rows.append([])
            x = 0.0
        rows[-1].append((i, x, wide))
        x += wide
    for line, row in enumerate(rows[-_ROWS:]):
        y = top + 4 + _LINE * line
        for i, x, wide in row:
            fill = theme.grid if i < far else theme.paper
            if i >= n - last:
                moved = change[i - (n - last)]
                end = SIGNED[-1] if moved > 0 else SIGNED[0]
                fill = blend((theme.paper, end), 0.75 * math.sqrt(abs(moved) / largest))
            drawing.box(left + x, y, wide - 1, _LINE - 2, fill)
            drawing.text(widget._texts[ids[i]], left + x + 1, y + 13, size=11, quiet=i < far)
    drawing.text("Grey: the far part. Orange: the loss of a measured token grew; blue: it fell.",
                 left, top + _HIGH + 6, size=11, quiet=True)  # fmt: skip
