"""The still picture of EnergyLandscape: the landscape with the path, and how the energy falls."""

import textwrap
from typing import Any

import numpy as np
import torch

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES, Theme, blend
from attnlab_widgets.query_on_a_plane.picture import DIAMOND, Square
from attnlab_widgets.words import fixed, two

_WIDE, _MARGIN, _TOP, _SIDE, _CELLS, _BANDS = 920, 24, 62, 400, 140, 14
_RIGHT, _HIGH = _MARGIN + _SIDE + 76, 170
_QUERY, _PATTERN, _PATH = SERIES[0], SERIES[1], SERIES[3]
VALLEY = {"light": "#0072b2", "dark": "#56b4e9"}
"""The colour of the lowest energy, mixed with the paper, as on the page."""


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    theme = THEMES[widget.theme]
    drawing = Drawing(_WIDE, _TOP + _SIDE + 20, theme)
    for at, line in enumerate(textwrap.wrap(widget.description(), 116)):
        drawing.text(line, _MARGIN, 22 + 18 * at, bold=True, size=13)
    path = widget.path().tolist()
    _landscape(drawing, widget, path)
    _fall(drawing, widget.energies().tolist())
    top = _TOP + _HIGH + 58
    drawing.text("step        state                energy", _RIGHT - 30, top, quiet=True)
    for step, (state, energy) in enumerate(zip(path, widget.energies().tolist(), strict=True)):
        place = f"({two(state[0])}, {two(state[1])})"
        row = top + 17 + 13 * step
        for text, x in ((str(step), 0), (place, 130), (f"{energy:.3f}", 196)):
            drawing.text(text, _RIGHT - 8 + x, row, anchor="end", size=11)
    return drawing


def bands(energies: np.ndarray) -> np.ndarray:
    """The bands 0 … 13 of energies, from the lowest on: equal steps of the root of what lies
    above it, so that valleys show beside high slopes."""
    above = energies - energies.min()
    return np.minimum(_BANDS * np.sqrt(above / max(above.max(), 1e-12)), _BANDS - 1).astype(int)


def _palette(theme: Theme) -> list[str]:
    ink = VALLEY["dark" if theme == THEMES["dark"] else "light"]
    valley = blend((theme.paper, ink), 0.7)
    return [blend((valley, theme.paper), at / (_BANDS - 1)) for at in range(_BANDS)]


def _landscape(drawing: Drawing, widget: Any, path: list[list[float]]) -> None:
    points = [*widget.patterns, widget.query]
    square = Square(drawing, (_MARGIN, _TOP), _SIDE, points, least=1.5)
    middle = (torch.arange(_CELLS, dtype=torch.float64) + 0.5) / _CELLS * 2 - 1
    across, up = torch.meshgrid(middle, -middle, indexing="xy")
    grid = square.half * torch.stack((across, up), dim=-1).flatten(0, 1)
    energies = widget.energy_at(grid).view(_CELLS, _CELLS).numpy()
    drawing.map(bands(energies), _palette(drawing.theme), _MARGIN, _TOP, _SIDE, _SIDE)
    square.axes()
    drawing.line([square.at(state) for state in path], _PATH, 2)
    for state in path[1:]:
        drawing.disc(*square.at(state), 3.5, _PATH)
    weights = widget.weights().tolist()
    for name, pattern, weight in zip(widget.names, widget.patterns, weights, strict=True):
        square.marker(DIAMOND, pattern, 8, _PATTERN)
        square.label(f"{name} {two(weight)}", pattern, 13)
    drawing.disc(*square.at(widget.query), 7, _QUERY)
    square.label("query", widget.query, 12, lower=12, bold=True)


def _fall(drawing: Drawing, energies: list[float]) -> None:
    """The energy after each step, on an axis that is cut to the path."""
    theme, wide, top = drawing.theme, _WIDE - _RIGHT - _MARGIN, _TOP + 24
    drawing.text("The energy falls", _RIGHT - 30, _TOP + 4, bold=True, size=14)
    drawing.text("the axis is cut to the path", _RIGHT + 94, _TOP + 4, quiet=True, size=11)
    largest = max(energies)
    least = min(*energies, largest - 0.01)
    digits = 3 if largest - least < 0.1 else 2

    def place(step: int, energy: float) -> tuple[float, float]:
        return _RIGHT + wide * step / (len(energies) - 1), top + _HIGH * (largest - energy) / (
            largest - least
        )

    for energy in (least, (least + largest) / 2, largest):
        (x, y), (end, _) = place(0, energy), place(len(energies) - 1, energy)
        drawing.line([(x, y), (end, y)], theme.grid)
        drawing.text(fixed(energy, digits), x - 8, y, anchor="end", size=11, quiet=True)
    for step in range(len(energies)):
        x, y = place(step, least)
        drawing.text(str(step), x, y + 14, anchor="middle", size=11, quiet=True)
    points = [place(step, energy) for step, energy in enumerate(energies)]
    drawing.line(points, _PATH, 2)
    for x, y in points:
        drawing.disc(x, y, 3.5, _PATH)
