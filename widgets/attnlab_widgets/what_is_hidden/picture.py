"""The still picture of WhatIsHidden: a row for each objective, a column for each token, and below
them what the chosen objective reads and asks."""

import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.layout import text_width
from attnlab.figures.theme import SERIES, THEMES

_WIDE, _MARGIN, _LEFT, _RIGHT = 952, 24, 150, 92
_ROW, _HEAD, _MOST_LINES = 19, 74, 4
SHOWN, HIDDEN, REPLACED, KEPT, OPEN, SIGN = range(6)


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    said = textwrap.wrap(widget.description(), 122)
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = _table(drawing, widget, 14 + 18 * len(said))
    top = _legend(drawing, top + 14)
    found, words = widget.drawn(), widget._hidden["words"]
    for title, places in (("reads", found["source"]), ("asked", found["asked"])):
        if places:
            name = "goes in" if title == "reads" or not found["source"] else "is written"
            top = _strip(drawing, places, words, name, top + 16)
    drawing.high = round(top + 8)
    return drawing


def _table(drawing: Drawing, widget: Any, top: float) -> float:
    tokens, theme = widget.tokens, drawing.theme
    n = len(tokens)
    cell = (_WIDE - 2 * _MARGIN - _LEFT - _RIGHT) / n
    x = _MARGIN + _LEFT
    for at, token in enumerate(tokens):
        drawing.text(token[:10], x + (at + 0.5) * cell, top + _HEAD - 4, turned=True, size=11,
                     quiet=True)  # fmt: skip
    top += _HEAD + 2
    for line, name in enumerate(widget.objectives):
        y, found = top + line * _ROW, widget.drawn(name)
        chosen = name == widget.objective
        drawing.text(name, _MARGIN, y + _ROW / 2, size=12, bold=chosen, quiet=not chosen)
        kinds = [int(kind) for kind in found["kinds"]]
        for at, kind in enumerate(kinds):
            _cell(drawing, kind, x + at * cell, y, cell - 1, _ROW - 3)
            if found["pays"][at] == "1":
                drawing.disc(x + (at + 0.5) * cell, y + _ROW / 2 - 1, 3, SERIES[0])
        if chosen:
            drawing.frame(x - 2, y - 2, n * cell + 3, _ROW, theme.ink, 2)
        paid = found["pays"].count("1")
        score = found["whole"][:14] if found["whole"] else f"{paid} of {len(kinds)}"
        drawing.text(score, _WIDE - _MARGIN, y + _ROW / 2, anchor="end", size=11, quiet=True)
    return top + len(widget.objectives) * _ROW


def _cell(drawing: Drawing, kind: int, x: float, y: float, w: float, h: float) -> None:
    theme = drawing.theme
    drawing.box(x, y, w, h, theme.panel, theme.grid, 1)
    if kind == HIDDEN:
        drawing.hatch(np.ones((1, 1)), x, y, w, h)
    elif kind == REPLACED:
        drawing.box(x, y, w, h, theme.panel, SERIES[1], 2)
    elif kind == OPEN:
        drawing.box(x, y + h - 3, w, 3, SERIES[2])


def _legend(drawing: Drawing, y: float) -> float:
    x: float = _MARGIN
    for kind, words in ((SHOWN, "shown"), (HIDDEN, "hidden"), (REPLACED, "replaced"),
                        (OPEN, "read from both sides")):  # fmt: skip
        _cell(drawing, kind, x, y - 7, 18, 14)
        drawing.text(words, x + 24, y, size=11, quiet=True)
        x += 40 + text_width(words, 11)
    drawing.disc(x + 8, y, 3, SERIES[0])
    drawing.text("asked for: it pays", x + 18, y, size=11, quiet=True)
    return y + 10


def _strip(drawing: Drawing, places: Any, words: Any, name: str, top: float) -> float:
    """Boxes like text, the answer below each; what has no room in four lines is left out."""
    answers = any(answer >= 0 for _, answer, _, _ in places)
    x, line, tall = float(_MARGIN + 74), 0, 36 if answers else 21
    drawing.text(name, _MARGIN, top + 8, size=12, bold=True)
    for at, (word, answer, kind, _) in enumerate(places):
        shown = words[word] if word >= 0 else ""
        wanted = words[answer] if answer >= 0 else ""
        wide = max(20, text_width(shown, 11) + 8, text_width(wanted, 11) + 4)
        if x + wide > _WIDE - _MARGIN:
            x, line = float(_MARGIN + 74), line + 1
            if line == _MOST_LINES:
                drawing.text(
                    f"… {len(places) - at} more", x, top + line * tall, size=11, quiet=True
                )
                return top + line * tall + 8
        y = top + line * tall
        _cell(drawing, HIDDEN if kind == HIDDEN else REPLACED if kind == REPLACED else SHOWN,
              x, y, wide, 17)  # fmt: skip
        drawing.text(shown, x + wide / 2, y + 8, size=11, anchor="middle", quiet=kind == SIGN)
        if wanted:
            drawing.text(wanted, x + wide / 2, y + 25, size=11, anchor="middle", bold=True,
                         colour=SERIES[0])  # fmt: skip
        x += wide + 3
    return top + (line + 1) * tall
