"""The still picture of LayerChoices: the map of a head, and the scores of one query."""

import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, SIGNED, THEMES, blend

_WIDE, _MARGIN, _SIDE, _LEVELS = 952, 24, 400, 100
_BARS, _HIGH = 440, 150
_MISSED = SIGNED[-1]


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    theme, one, head, i = THEMES[widget.theme], widget.selected, widget.head, widget.row
    said = textwrap.wrap(widget.description(), 122)
    top = 24 + 18 * len(said) + 22
    drawing = Drawing(_WIDE, top + _SIDE + _MARGIN, theme)
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 22 + 18 * at, bold=True, size=13)
    drawing.text("Full attention on keys that are read, from dark to yellow; lost: orange",
                 _MARGIN, top - 12, quiet=True)  # fmt: skip
    _map(drawing, widget, top)
    x = _MARGIN + _SIDE + 40
    scores, chosen = one.scores[head, i].numpy(), one.chosen[head, i].numpy()
    real = np.isfinite(scores)
    drawing.text(f"Score of each {one.of}: filled where it is chosen", x, top - 12, quiet=True)
    _bars(drawing, np.where(real, scores, 0), chosen, x, top, SERIES[0])
    low = top + _HIGH + 60
    drawing.text(f"Full attention on each {one.of}", x, low - 12, quiet=True)
    _bars(drawing, one.by_unit()[head, i].numpy(), chosen, x, low, CIVIDIS[-2])
    return drawing


def _map(drawing: Drawing, widget: Any, top: float) -> None:
    one, head, theme = widget.selected, widget.head, drawing.theme
    weights, allowed = one.full[head].numpy(), one.allowed.numpy()
    share = np.sqrt(weights / max(weights.max(), 1e-12))
    level = np.rint(share * (_LEVELS - 1)).astype(int)
    palette = [blend(CIVIDIS, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    palette += [blend((theme.panel, _MISSED), at / (_LEVELS - 1)) for at in range(_LEVELS)]
    read = one.branches[widget.branch].read[head].numpy()
    n, m = level.shape
    high = max(_SIDE * n / m, 8)
    box = (_MARGIN, top, _SIDE, high)
    drawing.map(np.where(read, level, level + _LEVELS), palette, *box)
    if not allowed.all():
        drawing.hatch(~allowed, *box)
    drawing.frame(*box, theme.grid)
    drawing.frame(_MARGIN, top + widget.row * high / n, _SIDE, high / n, theme.ink, 2)


def _bars(
    drawing: Drawing, values: np.ndarray, chosen: np.ndarray, x: float, top: float, colour: str
) -> None:
    low, high = min(float(values.min()), 0), max(float(values.max()), 0)
    unit = _HIGH / ((high - low) or 1)
    zero, step = top + high * unit, _BARS / len(values)
    for at, (value, on) in enumerate(zip(values.tolist(), chosen.tolist(), strict=True)):
        y, tall = zero - max(value, 0) * unit, max(abs(value) * unit, 0.5)
        fill = colour if on else blend((drawing.theme.paper, _MISSED), 0.35)
        drawing.box(x + at * step, y, max(step - 1, 0.8), tall, fill)
    drawing.line([(x, zero), (x + _BARS, zero)], drawing.theme.grid)
