"""The still picture of TableView: the table, its scores along the side and the top, and the sums
in its cells."""

import textwrap
from collections.abc import Sequence

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import DARK, SERIES, THEMES, blend
from attnlab_widgets.table_view.words import Asked, best
from attnlab_widgets.words import two

_WIDE, _MARGIN, _SIDE, _ROW, _HEAD = 920, 24, 88, 36, 44
_MOST_ROWS, _MOST_COLUMNS = 12, 6
_BEST, _ANSWER = SERIES[0], SERIES[1]
_DEEPEST = 0.45
"""How much of the colour is mixed with the paper for the highest score, as on the page."""


def picture(question: Asked, theme: str) -> Drawing:
    """One question to a table; of a large one the rows and columns with the highest scores."""
    rows = _shown(question, "rows", _MOST_ROWS)
    columns = _shown(question, "columns", _MOST_COLUMNS)
    said = textwrap.wrap(question["said"], 116)
    asked = textwrap.wrap(question["text"], 96)
    top = 20 + 20 * len(asked) + 18 * len(said) + 10
    left_out = _left_out(question, rows, columns)
    high = top + _HEAD + _ROW * len(rows) + 26 + (18 if left_out else 0)
    drawing = Drawing(_WIDE, high, THEMES[theme])
    for at, text in enumerate(asked):
        drawing.text(text, _MARGIN, 20 + 20 * at, bold=True, size=15)
    for at, text in enumerate(said):
        drawing.text(text, _MARGIN, 20 + 20 * len(asked) + 18 * at, size=13)
    wide = (_WIDE - 2 * _MARGIN - _SIDE) / len(columns)
    for place, column in enumerate(columns):
        x = _MARGIN + _SIDE + place * wide
        name = _fitting(question["header"][column], wide)
        drawing.text(name, x + 8, top + 10, bold=True, size=12)
        score = question["columns"][column]
        _heat(drawing, score, question["columns"], (x, top + 20, wide - 2, _HEAD - 22))
        drawing.text(two(score), x + 8, top + 31, size=11)
    for line, row in enumerate(rows):
        y = top + _HEAD + line * _ROW
        score = question["rows"][row]
        drawing.text(f"row {row}", _MARGIN, y + _ROW / 2, size=11, quiet=True)
        _heat(drawing, score, question["rows"], (_MARGIN + 42, y, _SIDE - 44, _ROW - 2))
        drawing.text(two(score), _MARGIN + 48, y + _ROW / 2, size=11)
        for place, column in enumerate(columns):
            box = (_MARGIN + _SIDE + place * wide, y, wide - 2, _ROW - 2)
            _cell(drawing, question, (row, column), box)
    below = top + _HEAD + len(rows) * _ROW
    if left_out:
        drawing.text(left_out, _MARGIN, below + 12, size=11, quiet=True)
    return drawing


def _shown(question: Asked, part: str, most: int) -> list[int]:
    """The cells with the highest scores, and the answer's, in their own order."""
    scores, answer = question[part], question["answer"]
    right = None if answer is None else answer[0 if part == "rows" else 1]
    order = sorted(range(len(scores)), key=lambda at: (at != right, -scores[at]))
    return sorted(order[:most])


def _left_out(question: Asked, rows: Sequence[int], columns: Sequence[int]) -> str:
    counts = (len(rows), len(question["rows"])), (len(columns), len(question["columns"]))
    if all(shown == all_of for shown, all_of in counts):
        return ""
    (r, every_r), (c, every_c) = counts
    return f"{r} of {every_r} rows and {c} of {every_c} columns, those with the highest scores."


def _cell(
    drawing: Drawing, question: Asked, cell: tuple[int, int],
    box: tuple[float, float, float, float],
) -> None:  # fmt: skip
    (row, column), (x, y, w, h) = cell, box
    rows, columns = question["rows"], question["columns"]
    score, sums = rows[row] + columns[column], [end(rows) + end(columns) for end in (min, max)]
    _heat(drawing, score, sums, box)
    drawing.text(_fitting(question["cells"][row][column], w), x + 8, y + 11, size=12)
    drawing.text(two(score), x + 8, y + 25, size=10, quiet=True)
    tags = []
    if list(cell) == best(question):
        drawing.frame(x, y, w, h, _BEST, 3)
        tags.append("best")
    if question["answer"] == list(cell):
        inside = 3 * len(tags)
        drawing.frame(x + inside, y + inside, w - 2 * inside, h - 2 * inside, _ANSWER, 2)
        tags.append("answer")
    if tags:
        drawing.text(" · ".join(tags), x + w - 8, y + 24, anchor="end", size=10, bold=True)


def _heat(
    drawing: Drawing, score: float, scores: Sequence[float], box: tuple[float, float, float, float]
) -> None:
    """The colour of a score among others, from the lowest (paper) to the highest."""
    low, high = min(scores), max(scores)
    share = (score - low) / (high - low) if high > low else 1.0
    ink = "#2ec49a" if drawing.theme == DARK else SERIES[2]
    drawing.box(*box, blend((drawing.theme.paper, ink), _DEEPEST * share))


def _fitting(text: str, wide: float) -> str:
    most = max(3, int((wide - 16) / 7))
    return text if len(text) <= most else f"{text[: most - 1]}…"
