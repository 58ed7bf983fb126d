"""The still picture of the survey's table: the first rows as they are sorted and filtered."""

import textwrap
from typing import Any

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import THEMES

_WIDE, _TOP, _ROWS, _MARGIN = 900, 66, 660, 20
_MOST = 30  # rows of a picture that is sharp within the bytes of a still
_COLUMNS = {
    "mechanism": 0, "year": 268, "family": 318, "claims": 402, "formula": 500, "counted": 572,
    "measured": 640, "decodes": 764, "lesson": 822,
}  # fmt: skip


def picture(survey: Any) -> Drawing:
    """The table; under it, on what machine the times were taken."""
    theme = THEMES[survey.theme]
    rows = survey.shown()[:_MOST]
    left = len(survey.shown()) - len(rows)
    row_high = min(19, _ROWS // max(1, len(rows)))
    drawing = Drawing(_WIDE, _TOP + row_high * len(rows) + 40, theme)
    drawing.text(
        "What mechanisms cost: claimed, counted, measured", _MARGIN, 24, bold=True, size=14
    )
    for name, x in _COLUMNS.items():
        drawing.text(name, _MARGIN + x, _TOP - 14, size=11, bold=True)
    for at, row in enumerate(rows):
        y = _TOP + row_high * at
        over = y + 8 - row_high / 2
        drawing.line([(_MARGIN, over), (_WIDE - _MARGIN, over)], theme.grid)
        for name, cell in cells(row).items():
            drawing.text(cell, _MARGIN + _COLUMNS[name], y + 8, size=11)
    note = f"And {left} more. " * bool(left) + "Exponents of n."
    note += f" Times: {survey._machine}." if survey._machine else ""
    drawing.text(note, _MARGIN, _TOP + row_high * len(rows) + 16, size=11, quiet=True)
    return drawing


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A row in words."""
    measured = row["measured"]
    return {
        "mechanism": textwrap.shorten(row["title"], 42, placeholder=" …"),
        "year": str(row["year"]),
        "family": row["family"],
        "claims": row["claimed"],
        "formula": f"{row['formula']:.2f}",
        "counted": "…" if row["counted"] is None else f"{row['counted']:.2f}",
        "measured": "–"
        if measured is None
        else "{:.2f} ({:.2f} to {:.2f})".format(measured, *row["interval"]),
        "decodes": {True: "yes", False: "no", None: "…"}[row["decodes"]],
        "lesson": row["lesson"][1].split()[1] if row["lesson"] else "–",
    }
