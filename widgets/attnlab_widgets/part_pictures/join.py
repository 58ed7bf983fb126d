"""A join: variance of the stream and its gradient after each layer, before training."""

import math

import numpy as np

from attnlab.catalog import remembered
from attnlab.core.card import Card
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, Theme
from attnlab.lens.depth_profile import DepthProfile, depth_profile
from attnlab_widgets.part_pictures.sketch import SMALL, Sketch, sheet

LAYERS = 24
_HIGH, _TOP, _TALL, _LEFT, _WIDE, _GAP = 138, 40, 78, 34, 142, 50
_MOST = 1e30


def draw(card: Card, theme: Theme) -> Sketch:
    found = look(card.name)
    drawing = sheet(_HIGH, theme, f"{LAYERS} layers, before training")
    _panel(drawing, 0, "variance of the stream", found.variance.numpy(), SERIES[0])
    _panel(drawing, 1, "gradient beside the last", found.gradient.numpy(), SERIES[1])
    variance, gradient = float(found.variance[-1]), float(found.gradient[0])
    words = (
        f"Before training, the variance of the stream after {LAYERS} layers of attention and a "
        f"feed-forward layer is {variance:.3g} (1 in front of them), and its gradient after the "
        f"first is {gradient:.3g} times that after the last."
    )
    return Sketch(drawing, words)


@remembered
def look(name: str) -> DepthProfile:
    """Its profile by depth."""
    return depth_profile(name, LAYERS)


def _panel(drawing: Drawing, at: int, name: str, values: np.ndarray, colour: str) -> None:
    theme, left = drawing.theme, _LEFT + at * (_WIDE + _GAP)
    finite = np.clip(np.nan_to_num(values, posinf=_MOST), 1 / _MOST, _MOST)
    low = min(-1, math.floor(math.log10(finite.min())))
    high = max(2, math.ceil(math.log10(finite.max())))
    drawing.text(name, left, _TOP - 12, size=SMALL, quiet=True)

    def y(power: float) -> float:
        return _TOP + _TALL * (high - power) / (high - low)

    for power in range(low, high + 1, math.ceil((high - low) / 4)):
        drawing.line([(left, y(power)), (left + _WIDE, y(power))], theme.grid)
        drawing.text(_power(power), left - 4, y(power), size=9, quiet=True, anchor="end")
    across = left + _WIDE * np.arange(len(finite)) / (len(finite) - 1)
    points = list(zip(across.tolist(), map(y, np.log10(finite)), strict=True))
    drawing.line([(round(a, 1), round(b, 1)) for a, b in points], colour, 2)
    below = {"size": 9, "quiet": True}
    for place, anchor in ((0, "start"), (len(finite) - 1, "end")):
        drawing.text(str(place + 1), across[place], _TOP + _TALL + 10, anchor=anchor, **below)
    drawing.text("layer", left + _WIDE / 2, _TOP + _TALL + 10, anchor="middle", **below)
    for place in (0, -1):
        drawing.disc(*points[place], 2.5, colour)


def _power(power: int) -> str:
    if -2 <= power <= 3:
        return f"{10.0**power:g}"
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
