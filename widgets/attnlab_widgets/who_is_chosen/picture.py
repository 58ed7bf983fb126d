"""The still picture of WhoIsChosen: four maps in a row, chosen weights beside those lost."""

from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, SIGNED, THEMES, blend

_WIDE, _MARGIN, _GAP, _TOP, _LEVELS = 952, 20, 16, 62, 100
_SIDE = (_WIDE - 2 * _MARGIN - 3 * _GAP) // 4
_MISSED = SIGNED[-1]
COLOURS = {"weight": SERIES[4], "hashing": SERIES[0], "clustering": SERIES[3], "sorting": SERIES[2]}
"""Each way's colour, as on the page."""


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state, without the plane and the chart."""
    theme = THEMES[widget.theme]
    drawing = Drawing(_WIDE, _TOP + 22 + _SIDE + _MARGIN, theme)
    drawing.text(
        f"Which keys are chosen, and how much of the weight of each query's {widget.heaviest} is "
        "among them", _MARGIN, 22, bold=True, size=14,
    )  # fmt: skip
    said = (
        "From dark to yellow: chosen, by the root of the weight, 0 to 1. Orange: lost, among the "
        f"query's {widget.heaviest}. Hatched: may not attend."
    )
    drawing.text(said, _MARGIN, 44, quiet=True)
    masked = ~widget._allowed().numpy()
    weights = widget.weights().numpy()
    level = np.rint(np.sqrt(weights) * (_LEVELS - 1)).astype(int)
    heavy = widget.choice("weight").chosen.numpy()
    rest = np.where(heavy, _LEVELS + 1, _LEVELS)
    palette = [blend(CIVIDIS, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    palette += [theme.panel, _MISSED]
    for at, (way, colour) in enumerate(COLOURS.items()):
        found = widget.choice(way)
        x, y = _MARGIN + at * (_SIDE + _GAP), _TOP + 22
        drawing.box(x, _TOP - 4, 6, 16, colour)
        name = widget.ways()[way]
        drawing.text(f"{name}: {100 * widget.recall(way):.0f} %", x + 12, _TOP + 5, bold=True)
        chosen = found.chosen.numpy()
        drawing.map(np.where(chosen, level, rest), palette, x, y, _SIDE, _SIDE)
        if masked.any():
            drawing.hatch(masked, x, y, _SIDE, _SIDE)
        drawing.frame(x, y, _SIDE, _SIDE, theme.grid)
    return drawing
