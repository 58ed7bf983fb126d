"""The still picture of ErrorGraph: the steps from left to right, each value a point of its kind."""

import textwrap
from typing import Any

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES
from attnlab_widgets.error_graph.study import LOOKS
from attnlab_widgets.marks import draw_point

_WIDE, _MARGIN, _HIGH, _EDGE, _RADIUS = 952, 24, 330, 34, 8
_NAMED = 58
"""The least distance of columns at which all names are shown."""


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    told = widget._told
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    lines = textwrap.wrap(widget.description(), 122)
    for at, line in enumerate(lines):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 22 + 18 * len(lines)
    drawing.box(_MARGIN, top, _WIDE - 2 * _MARGIN, _HIGH, drawing.theme.panel)
    points = [_place(each, top) for each in told["places"]]
    _edges(drawing, widget, points)
    apart = (_WIDE - 2 * (_MARGIN + _EDGE)) / max(1, told["columns"] - 1)
    for at, (node, (x, y)) in enumerate(zip(told["nodes"], points, strict=True)):
        now = at == widget.node
        if now:
            draw_point(drawing, node["kind"], drawing.theme.ink, x, y, _RADIUS + 4)
            draw_point(drawing, node["kind"], drawing.theme.paper, x, y, _RADIUS + 2)
        draw_point(drawing, node["kind"], SERIES[node["kind"]], x, y, _RADIUS)
        drawing.text(node["stated"], x, y + 19, anchor="middle", size=11, bold=True)
        if apart >= _NAMED or now:
            drawing.text(node["name"], x, y - 16, anchor="middle", size=10, quiet=not now)
    low, x = top + _HIGH + 16, float(_MARGIN)
    for kind, name in enumerate(LOOKS):
        draw_point(drawing, kind, SERIES[kind], x + 6, low, 5)
        drawing.text(name, x + 16, low, size=11)
        x += 46 + 6.6 * len(name)
    drawing.text("orange lines: from a wrong value", x, low, size=11, quiet=True)
    drawing.high = round(low + 14)
    return drawing


def _place(place: list[float], top: float) -> tuple[float, float]:
    wide, high = _WIDE - 2 * (_MARGIN + _EDGE), _HIGH - 2 * _EDGE
    return _MARGIN + _EDGE + place[0] * wide, top + _EDGE + place[1] * high


def _edges(drawing: Drawing, widget: Any, points: list[tuple[float, float]]) -> None:
    nodes = widget._told["nodes"]
    for at, node in enumerate(nodes):
        for parent in node["parents"]:
            wrong = nodes[parent]["wrong"]
            colour = SERIES[1] if wrong else drawing.theme.quiet
            width = 2.4 if at == widget.node else 1.4 if wrong else 0.8
            drawing.line([points[parent], points[at]], colour, width, "6 3" if wrong else "")
