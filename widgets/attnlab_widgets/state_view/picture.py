"""The still picture of StateView: A · S + b k vᵀ = S, eigenvalues, and what each key returns."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, SIGNED, THEMES, blend, contrast
from attnlab_widgets.state_view.rules import RULES
from attnlab_widgets.state_view.words import NOTHING, best, number

_WIDE, _MARGIN, _TOP, _LEVELS = 952, 24, 74, 60
_LOW = _TOP + 240
Rows = Sequence[Sequence[float]]


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    drawing = Drawing(_WIDE, _LOW + 226, THEMES[widget.theme])
    for at, line in enumerate(textwrap.wrap(widget.description(), 122)):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    _equation(drawing, widget)
    _eigenvalues(drawing, widget, _MARGIN, _LOW)
    _readings(drawing, widget, 330, _LOW)
    _all_rules(drawing, widget, 690, _LOW)
    return drawing


def _equation(drawing: Drawing, widget: Any) -> None:
    """The four matrices of the present token."""
    t, states, rule = widget.token, widget.states(), widget.rule
    A, before, after = widget.transitions()[t], states[t], states[t + 1]
    cell = min(40, 160 / max(A.shape[0], before.shape[1]))
    largest = max(1.0, float(states.abs().max()))
    channels = [str(r) for r in range(A.shape[0])]
    parts = (
        ("A: what is kept", A, channels, 1.0),
        ("S before", before, widget.values, largest),
        (
            f"written: {'' if rule.erases == 'none' else 'b '}k vᵀ",
            after - A @ before,
            widget.values,
            largest,
        ),
        ("S after", after, widget.values, largest),
    )
    x = _MARGIN + 18.0
    for (title, matrix, columns, most), sign in zip(parts, ("·", "+", "=", ""), strict=True):
        wide = cell * matrix.shape[1]
        drawing.text(title, x, _TOP + 4, bold=True, size=14)
        _grid(drawing, matrix.tolist(), (x, _TOP + 38), cell, most)
        _names(drawing, channels, columns, (x, _TOP + 38), cell)
        drawing.text(sign, x + wide + 28, _TOP + 38 + cell * len(channels) / 2, size=22)
        x += wide + 72
    drawing.text(rule.formula, _MARGIN, _TOP + 214, quiet=True)


def _grid(
    drawing: Drawing, rows: Rows, corner: tuple[float, float], cell: float, largest: float
) -> None:
    """A matrix: blue below 0, orange above, with its numbers."""
    array, (x, y) = np.array(rows), corner
    share = np.sqrt(np.minimum(1, np.abs(array) / largest)) * np.sign(array)
    levels = np.round((share + 1) / 2 * (_LEVELS - 1)).astype(int)
    palette = [blend(SIGNED, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    drawing.map(levels, palette, x, y, cell * array.shape[1], cell * array.shape[0])
    drawing.frame(x, y, cell * array.shape[1], cell * array.shape[0], drawing.theme.quiet)
    for (i, j), value in np.ndenumerate(array):
        ground = palette[levels[i, j]]
        ink = max(("#1f2329", "#ffffff"), key=lambda one: contrast(one, ground))
        if abs(value) < 100 and cell >= 26:
            place = x + cell * (j + 0.5), y + cell * (i + 0.5)
            zero = abs(value) < NOTHING
            text, ink = ("0", "#57606b") if zero else (number(value), ink)
            drawing.text(text, *place, anchor="middle", size=11, colour=ink)


def _names(
    drawing: Drawing, rows: Sequence[str], columns: Sequence[str], corner: tuple[float, float],
    cell: float,
) -> None:  # fmt: skip
    x, y = corner
    for i, name in enumerate(rows):
        place = x - 6, y + cell * (i + 0.5)
        drawing.text(short(name, 8), *place, anchor="end", size=11, quiet=True)
    for j, name in enumerate(columns):
        place = x + cell * (j + 0.5), y - 10
        drawing.text(short(name, 5), *place, anchor="middle", size=11, quiet=True)


def short(name: str, longest: int) -> str:
    """A name that fits where there is room for so many letters."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _eigenvalues(drawing: Drawing, widget: Any, x: float, y: float) -> None:
    """One column of points a token."""
    spectra, theme = widget.eigenvalues().numpy(), drawing.theme
    low, high, wide, tall = min(-1, spectra.min()), max(1, spectra.max()), 230, 150
    drawing.text("Eigenvalues of A, token by token", x, y, bold=True, size=14)
    left, top = x + 34, y + 22

    def place(t: float, value: float) -> tuple[float, float]:
        across = wide * (t + 0.5) / len(spectra)
        return left + across, top + tall * (high - value) / (high - low)

    for value in (-1, 0, 1):
        height = place(0, value)[1]
        drawing.line([(left, height), (left + wide, height)], theme.grid)
        drawing.text(number(value)[:-3], left - 8, height, anchor="end", size=11, quiet=True)
    for t, spectrum in enumerate(spectra):
        now = t == widget.token
        drawing.text(str(t + 1), place(t, 0)[0], top + tall + 14, anchor="middle", size=11,
                     quiet=not now, bold=now)  # fmt: skip
        for value in spectrum:
            drawing.disc(*place(t, value), 5 if now else 3.5, SERIES[1 if now else 0])


def _readings(drawing: Drawing, widget: Any, x: float, y: float) -> None:
    """Keys × values, and the value that was written last."""
    rows, newest = widget.readings().tolist(), widget.newest()
    cell = min(40, 150 / max(len(rows), len(rows[0])))
    largest = max(1.0, max(abs(value) for row in rows for value in row))
    drawing.text("What each key returns", x, y, bold=True, size=14)
    corner = x + 56, y + 38
    _grid(drawing, rows, corner, cell, largest)
    _names(drawing, widget.names, widget.values, corner, cell)
    place = corner[0] + cell * len(rows[0]) + 10
    drawing.text("newest", place, y + 28, size=11, quiet=True)
    for i, (row, value) in enumerate(zip(rows, newest, strict=True)):
        said = "–"
        if value is not None:
            right = best(row) == [value]
            said = f"{short(widget.values[value], 8)} {'✓' if right else '✗'}"
        drawing.text(said, place, corner[1] + cell * (i + 0.5))


def _all_rules(drawing: Drawing, widget: Any, x: float, y: float) -> None:
    """How many keys return their newest value, by rule."""
    written = sum(value is not None for value in widget.newest())
    drawing.text("Newest value, by rule", x, y, bold=True, size=14)
    for at, (family, right) in enumerate(widget.right().items()):
        now, height = family == widget.family, y + 28 + 20 * at
        drawing.text(RULES[family].title, x, height, bold=now)
        drawing.text(f"{right} of {written}", x + 226, height, anchor="end", bold=now)
