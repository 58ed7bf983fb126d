"""The still picture of the survey's table: the first rows as they are sorted and filtered."""

import textwrap
from typing import Any

from attnlab.catalog import TITLES
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import THEMES, Theme
from attnlab_widgets.survey import on_a_gpu
from attnlab_widgets.survey.gains import spread, times
from attnlab_widgets.words import to_fixed

_WIDE, _TOP, _ROWS, _MARGIN = 900, 66, 660, 20
_PAGE = 250  # the column of the page
_MOST = 28  # rows of a picture that is sharp within the bytes of a still
_COLUMNS = {
    "mechanism": 0, "year": 240, "family": 280, "claims": 358, "formula": 442, "counted": 500,
    "measured": 560, "compiled": 674, "decodes": 766, "lesson": 822,
}  # fmt: skip


def picture(survey: Any) -> Drawing:
    """The table; under it, on what machine the times were taken."""
    theme = THEMES[survey.theme]
    if survey.shelf == "gpu":
        return _of_forms(survey, theme)
    if survey.shelf != "mechanisms":
        return _of_parts(survey, theme)
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


_FORM_WIDE = 1000
_FORM_COLUMNS = {
    "form": (0, 30), "on the CPU": (176, 21), "on the device": (300, 21), "forward": (424, 20),
    "both passes": (536, 20), "beside SDPA": (648, 24), "kernels": (794, 17),
    "of the peak": (890, 8),
}  # fmt: skip
"""Where each column begins, and how many letters it holds."""


def _of_forms(survey: Any, theme: Theme) -> Drawing:
    """The forms as they were timed on a GPU."""
    rows = survey.shown()[:_MOST]
    left = len(survey.shown()) - len(rows)
    drawing = Drawing(_FORM_WIDE, _TOP + 19 * len(rows) + 40, theme)
    title = f"Every form on {survey._device}, its exponent beside the CPU's"
    drawing.text(_short(title, 110), _MARGIN, 24, bold=True, size=14)
    for name, (x, _) in _FORM_COLUMNS.items():
        drawing.text(name, _MARGIN + x, _TOP - 14, size=11, bold=True)
    for at, row in enumerate(rows):
        y = _TOP + 19 * at
        drawing.line([(_MARGIN, y - 1.5), (_FORM_WIDE - _MARGIN, y - 1.5)], theme.grid)
        for (x, letters), cell in zip(_FORM_COLUMNS.values(), _told(row), strict=True):
            drawing.text(_short(cell, letters), _MARGIN + x, y + 8, size=11)
    note = f"And {left} more. " * bool(left) + f"{survey._timed_on}. Exponents of n, forward."
    drawing.text(note, _MARGIN, _TOP + 19 * len(rows) + 16, size=11, quiet=True)
    return drawing


def _told(row: dict[str, Any]) -> list[str]:
    """The cells of a form; of where it is faster the first words, without the interval."""
    cells = on_a_gpu.cells(row)
    at = [*_FORM_COLUMNS].index("beside SDPA")
    cells[at] = cells[at].partition(" (")[0].partition(", ")[0]
    return cells


def _of_parts(survey: Any, theme: Theme) -> Drawing:
    """The pages of another shelf with what they claim."""
    rows = survey.shown()[:_MOST]
    labels = [label for label, _ in rows[0]["claims"]] if rows else []
    wide = (_WIDE - 2 * _MARGIN - _PAGE) / max(1, len(labels))
    letters = int(wide / 6.4)
    drawing = Drawing(_WIDE, _TOP + 19 * len(rows) + 20, theme)
    drawing.text(TITLES[survey.shelf], _MARGIN, 24, bold=True, size=14)
    for at, label in enumerate(("page", *labels)):
        x = _MARGIN + (at > 0) * (_PAGE + (at - 1) * wide)
        drawing.text(_short(label, letters), x, _TOP - 14, size=11, bold=True)
    for at, row in enumerate(rows):
        y = _TOP + 19 * at
        drawing.line([(_MARGIN, y - 1.5), (_WIDE - _MARGIN, y - 1.5)], theme.grid)
        drawing.text(_short(f"{row['title']}, {row['year']}", 36), _MARGIN, y + 8, size=11)
        for place, (_, text) in enumerate(row["claims"]):
            x = _MARGIN + _PAGE + place * wide
            drawing.text(_short(text, letters), x, y + 8, size=11)
    return drawing


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"


def cells(row: dict[str, Any]) -> dict[str, str]:
    """A row in words."""
    measured = row["measured"]
    return {
        "mechanism": textwrap.shorten(row["title"], 38, placeholder=" …"),
        "year": str(row["year"]),
        "family": row["family"],
        "claims": row["claimed"],
        "formula": to_fixed(row["formula"], 2),
        "counted": "…" if row["counted"] is None else to_fixed(row["counted"], 2),
        "measured": "–"
        if measured is None
        else f"{to_fixed(measured, 2)} ({spread(row['interval'])})",
        "compiled": "not measured"
        if row["compiled"] is None
        else f"{times(row['compiled'], row['compiled_quartiles'])} ×",
        "decodes": {True: "yes", False: "no", None: "…"}[row["decodes"]],
        "lesson": row["lesson"][1].split()[1] if row["lesson"] else "–",
    }
