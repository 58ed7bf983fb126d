"""The still picture of DepthView: a row for each token, a column for each step, and beside them the
way of the chosen token."""

import math
import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, THEMES, blend
from attnlab_widgets.depth_view.words import power

_WIDE, _MARGIN, _LEFT, _CHART, _LEVELS = 952, 24, 118, 260, 100
_ROW, _MOST_ROWS = 20, 22
_WORDS = {
    "distance": ("how far from the state with which it leaves", "there", "far"),
    "change": ("by how much the step changed the state", "little", "much"),
    "probability": ("how sure the model would be of its answer", "0", "1"),
}


class Scale:
    """From a value to its place on the colours, 0 to 1; logarithmic where values differ by more
    than a factor of 50, otherwise a square root."""

    def __init__(self, values: np.ndarray, colour: str) -> None:
        known = values[np.isfinite(values) & (values > 0)]
        self.plain = colour == "probability"
        self.high = 1.0 if self.plain else float(known.max()) if known.size else 1.0
        least = float(known.min()) if known.size else 1.0
        self.log = not self.plain and least < self.high / 50
        self.low = max(least, self.high / 1e4) if self.log else 0.0

    def share(self, value: float) -> float:
        if not self.log:
            part = value / self.high
            return part if self.plain else math.sqrt(part)
        if value <= self.low:
            return 0.0
        return math.log(value / self.low) / math.log(self.high / self.low)


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    said = textwrap.wrap(widget.description(), 122)
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 20 + 18 * len(said) + 4
    below = max(_grid(drawing, widget, top), _curves(drawing, widget, top + 12))
    drawing.high = round(below + 14)
    return drawing


def _shown(widget: Any) -> list[int]:
    """The rows that have room, around the chosen token."""
    rows = widget.rows()
    at = rows.index(widget.token)
    first = min(max(0, at - _MOST_ROWS // 2), max(0, len(rows) - _MOST_ROWS))
    return rows[first : first + _MOST_ROWS]


def _grid(drawing: Drawing, widget: Any, top: float) -> float:
    found, theme = widget.found, drawing.theme
    values = widget.values().numpy()
    scale = Scale(values, widget.colour)
    palette = [blend(CIVIDIS, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    rows, s = _shown(widget), values.shape[1]
    cell = min(76.0, (_WIDE - _LEFT - _CHART - 2 * _MARGIN) / s)
    what = widget._depth["what"]
    every = max(1, math.ceil(26 / cell))
    running = found.running().tolist()
    if found.early:
        for at, count in enumerate(filter(None, running)):
            high = 28 * count / len(values)
            drawing.box(_LEFT + at * cell, top + 30 - high, cell - 1, high, SERIES[0])
        drawing.text("still on the way", _LEFT - 8, top + 20, anchor="end", quiet=True, size=11)
        top += 34
    drawing.text(what, _LEFT - 8, top + 8, anchor="end", quiet=True, size=11)
    for at in range(0, s, every):
        place = _LEFT + (at + 0.5) * cell
        drawing.text(found.steps[at], place, top + 8, anchor="middle", quiet=True, size=11)
    top += 18
    for line, i in enumerate(rows):
        y = top + line * _ROW
        chosen = i == widget.token
        drawing.text(widget.tokens[i], _LEFT - 8, y + _ROW / 2, anchor="end", size=11,
                     bold=chosen, quiet=not chosen)  # fmt: skip
        left = int(found.left[i])
        for at in range(min(left, widget.step + 1)):
            value, box = values[i, at], (_LEFT + at * cell, y, cell, _ROW - 1)
            if math.isnan(value):
                drawing.box(*box, theme.panel)
                continue
            level = round(scale.share(value) * (_LEVELS - 1))
            drawing.box(*box, palette[level])
            if found.guesses and cell >= 40:
                _guess(drawing, found.guesses[i][at], box, level)
        if left < s:
            drawing.hatch(
                np.ones((1, 1), bool), _LEFT + left * cell, y, (s - left) * cell, _ROW - 1
            )
            drawing.box(_LEFT + left * cell - 3, y - 0.5, 3, _ROW, SERIES[1])
        if chosen:
            drawing.frame(_LEFT - 1, y - 1, s * cell + 2, _ROW + 1, theme.ink, 2)
    low = top + len(rows) * _ROW + 14
    words, least, most = _WORDS[widget.colour]
    drawing.text(least, _LEFT, low, quiet=True, size=11)
    x = _LEFT + 7 * len(least) + 4
    drawing.map(np.arange(_LEVELS)[None], palette, x, low - 5, 120, 10)
    more = f"; {len(values) - len(rows)} rows are not shown" if len(rows) < len(values) else ""
    ends = f"; hatched: after the token has left{more}" if found.early else more
    drawing.text(f"{most}: {words}{ends}", x + 126, low, quiet=True, size=11)
    return low + 10


def _guess(drawing: Drawing, text: str, box: tuple[float, ...], level: int) -> None:
    x, y, w, h = box
    most = int((w - 4) / 6.4)
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    ink = "#ffffff" if level < 0.55 * _LEVELS else "#101418"
    drawing.text(short, x + w / 2, y + h / 2, anchor="middle", size=10, colour=ink)


def _curves(drawing: Drawing, widget: Any, top: float) -> float:
    """The way of all tokens as lines, the chosen one bold; the residual of a solver dashed."""
    found = widget.found
    x, wide, high = _WIDE - _MARGIN - _CHART + 44, _CHART - 44, 150.0
    lines = widget.values().numpy()
    residual = found.residual
    every = [lines, *([] if residual is None else [residual.numpy()])]
    known = np.concatenate([each[np.isfinite(each) & (each > 0)] for each in map(np.ravel, every)])
    high_value = float(known.max()) if known.size else 1.0
    low_value = max(float(known.min()), high_value / 1e6) if known.size else 0.1
    low_value = min(low_value, high_value / 10)
    s = lines.shape[1]

    def points(row: Any) -> list[tuple[float, float]]:
        found = []
        for at, value in enumerate(row):
            if math.isfinite(value) and value >= low_value:
                share = math.log(value / low_value) / math.log(high_value / low_value)
                found.append((x + wide * (at + 0.5) / s, top + high * (1 - share)))
        return found

    drawing.frame(x, top, wide, high, drawing.theme.grid)
    for row in lines:
        drawing.line(points(row), drawing.theme.grid, 1)
    drawing.line(points(lines[widget.token]), SERIES[1], 2.5)
    if residual is not None:
        drawing.line(points(residual.numpy()), SERIES[0], 2, "6 4")
        drawing.text("dashed: the residual", x, top + high + 26, quiet=True, size=11)
    for value, y in ((high_value, top + 5), (low_value, top + high - 4)):
        drawing.text(power(value), x - 6, y, anchor="end", quiet=True, size=11)
    name = f"token {widget.token} among all, log scale"
    drawing.text(name, x, top + high + 12, quiet=True, size=11)
    return top + high + 34
