"""The still picture of HeadMap: the heads as points, and beside them the map of the chosen one."""

import math
import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, THEMES, blend
from attnlab_widgets.head_map.study import MASKED
from attnlab_widgets.marks import Point, draw_point

_WIDE, _MARGIN, _PLANE, _HIGH = 952, 24, 430, 400
_LEVELS, _LABEL = 100, 84


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    said = textwrap.wrap(widget.description(), 122)
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 28 + 18 * len(said)
    low = max(_plane(drawing, widget, top), _map(drawing, widget, top))
    drawing.high = round(low + 12)
    return drawing


def placed(points: np.ndarray, wide: float, high: float, edge: float) -> list[Point]:
    """Points in a field of that size, with one scale for both axes."""
    low, top = points.min(0), points.max(0)
    span = top - low
    fits = [
        (size - 2 * edge) / each for size, each in zip((wide, high), span, strict=True) if each > 0
    ]
    scale = min(fits, default=0.0)
    middle = (low + top) / 2
    return [
        (wide / 2 + scale * (x - middle[0]), high / 2 - scale * (y - middle[1])) for x, y in points
    ]


def radius(importance: np.ndarray | None, at: int) -> float:
    if importance is None or importance.max() == 0:
        return 7.0
    return 4 + 8 * math.sqrt(importance[at] / importance.max())


def _plane(drawing: Drawing, widget: Any, top: float) -> float:
    found, theme = widget.found, drawing.theme
    left = _MARGIN
    drawing.text("Heads that attend alike lie near each other", left, top, bold=True)
    top += 12
    drawing.box(left, top, _PLANE, _HIGH, theme.panel)
    points = [(left + x, top + y) for x, y in placed(found.plane.points, _PLANE, _HIGH, 34)]
    looks, layers = found.looks(), found.heads[-1][0]
    x, y = points[widget.at]
    shown = [found.heads.index(place) for place in widget.nearest()]
    for other in shown:
        drawing.line([(x, y), points[other]], theme.quiet, 1.2, "4 3")
    for at, (a, b) in enumerate(points):
        kind = looks.index(found.kinds[at])
        share = found.heads[at][0] / max(1, layers)
        colour = SERIES[kind % 5] if widget.colour == "kind" else blend(CIVIDIS, share)
        r = radius(found.importance, at)
        if at == widget.at:
            draw_point(drawing, kind, theme.ink, a, b, r + 3)
            draw_point(drawing, kind, theme.paper, a, b, r + 1.5)
        draw_point(drawing, kind, colour, a, b, r)
        if len(points) <= 24 or at == widget.at or at in shown:
            name = f"{found.heads[at][0]}.{found.heads[at][1]}"
            number = f" ({found.divergence[widget.at, at]:.2f})" if at in shown else ""
            strong = at == widget.at or at in shown
            drawing.text(name + number, a + r + 4, b - r, size=11, bold=strong, quiet=not strong)
    low, x = top + _HIGH + 16, float(left)
    for kind in sorted(set(found.kinds), key=looks.index):
        at = looks.index(kind)
        name = found.told_kind(kind)
        if x + 20 + 7 * len(name) > left + _PLANE:
            x, low = left, low + 18
        colour = SERIES[at % 5] if widget.colour == "kind" else theme.quiet
        draw_point(drawing, at, colour, x + 6, low, 5)
        drawing.text(name, x + 16, low, size=11)
        x += 30 + 6.6 * len(name)
    return low + 12


def _map(drawing: Drawing, widget: Any, top: float) -> float:
    found = widget.found
    n = len(found.tokens)
    begin = _MARGIN + _PLANE + 24
    drawing.text(f"Head {widget.head} of layer {widget.layer}: what each query attends to", begin,
                 top, bold=True)  # fmt: skip
    top += 12
    labelled = n <= 32
    left, upper = begin + (_LABEL if labelled else 20), top + (_LABEL if labelled else 20)
    side = min(_WIDE - _MARGIN - left, top + _HIGH - upper)
    cell = side / n
    codes, weights = found.codes[widget.at], found.weights[widget.at]
    palette = [blend(CIVIDIS, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    masked = codes == MASKED
    levels = np.where(masked, 0, np.round(np.sqrt(weights) * (_LEVELS - 1)).astype(int))
    drawing.map(levels, palette, left, upper, side, side)
    if masked.any():
        drawing.hatch(masked, left, upper, side, side)
    drawing.frame(left - 1, upper + widget.query * cell - 1, side + 2, cell + 2, SERIES[1], 2)
    if labelled:
        for at, token in enumerate(found.tokens):
            short = token if len(token) <= 12 else f"{token[:11]}…"
            y = upper + (at + 0.5) * cell
            drawing.text(short, left - 6, y, anchor="end", size=10, bold=at == widget.query,
                         quiet=at != widget.query)  # fmt: skip
            drawing.text(
                short, left + (at + 0.5) * cell, upper - 6, size=10, turned=True, quiet=True
            )
    else:
        drawing.text("key", left + side / 2, upper - 8, anchor="middle", size=11, quiet=True)
        drawing.text("query", left - 8, upper + side / 2, anchor="middle", size=11, quiet=True,
                     turned=True)  # fmt: skip
    low = upper + side + 16
    hatched = "; hatched: masked" if masked.any() else ""
    drawing.text(f"rows: queries, columns: keys; light: large weights{hatched}", left, low, size=11,
                 quiet=True)  # fmt: skip
    return low + 12
