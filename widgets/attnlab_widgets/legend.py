"""The one legend of maps of weights in still pictures, and the label of what nobody trained.

``src/parts/legend.js`` draws the same ones on a page.
"""

from typing import Any

import numpy as np
import traitlets

from attnlab.core.arguments import check_flag
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, DARK, HATCHING, SIGNED, blend
from attnlab_widgets.base import BaseWidget

_LONG, _HIGH, _LEVELS = 120, 10, 61


class SaysUntrained(BaseWidget):
    """A widget whose weights nobody may have trained: it is told by ``untrained=True``, and then
    its page and its still picture say so."""

    untrained = traitlets.Bool(False, read_only=True).tag(sync=True)

    def __init__(self, *, untrained: bool, **given: Any) -> None:
        check_flag("untrained", untrained)
        super().__init__(**given)
        self.set_trait("untrained", untrained)


def draw_weights(
    drawing: Drawing,
    x: float,
    y: float,
    *,
    signed: bool = False,
    largest: str = "1",
    name: str = "weight",
) -> None:
    """What a colour, a hatched cell and a framed one mean, in a line around ``y``: weights from 0
    to 1, or to the ``largest``, by their square root; ``signed`` adds the colours of maps with both
    signs. Of what has another ``name`` nothing is masked."""
    theme = drawing.theme
    x = _bar(drawing, x, y, CIVIDIS, _LONG, f"{name} 0", f"{largest} (square root)")
    if signed:
        x = _bar(drawing, x, y, SIGNED, _LONG // 2, "both signs: −largest", "+largest")
    if name != "weight":
        return
    ground, lines = HATCHING["dark" if theme == DARK else "light"]
    steps = np.add.outer(np.arange(2 * _HIGH), np.arange(44)) % 8 < 2
    drawing.map(steps.astype(int), [ground, lines], x, y - 5, 22, _HIGH)
    drawing.text("masked", x + 28, y, quiet=True, size=11)
    x += 92
    drawing.frame(x, y - 5, _HIGH, _HIGH, theme.quiet)
    drawing.text("its only key: always 1", x + 16, y, quiet=True, size=11)


def draw_untrained(drawing: Drawing, x: float, y: float, *, in_part: bool = False) -> None:
    """The label of what is shown with weights that nobody trained, "untrained" or, in two lines,
    "in part untrained"; its left end at x, its lower end at y."""
    lines = ["in part", "untrained"] if in_part else ["untrained"]
    theme, high = drawing.theme, 11 * len(lines) + 2
    drawing.box(x, y - high, 52, high, theme.panel, theme.grid)
    for at, line in enumerate(lines):
        drawing.text(line, x + 4, y - high + 7 + 11 * at, quiet=True, size=9)


def _bar(
    drawing: Drawing, x: float, y: float, scale: tuple[str, ...], wide: int, low: str, high: str
) -> float:
    """A bar of colours between two words; gives where the next may begin."""
    drawing.text(low, x, y, quiet=True, size=11)
    at = x + 6.2 * len(low) + 4
    palette = [blend(scale, step / (_LEVELS - 1)) for step in range(_LEVELS)]
    drawing.map(np.arange(_LEVELS)[None], palette, at, y - 5, wide, _HIGH)
    drawing.text(high, at + wide + 6, y, quiet=True, size=11)
    return at + wide + 6 + 6.2 * len(high) + 18
