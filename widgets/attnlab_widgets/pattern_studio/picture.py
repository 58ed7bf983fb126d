"""The still picture of a pattern: its mask, one row of weights and its receptive field."""

from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES

_WIDE, _HIGH, _TOP, _LEFT = 860, 512, 112, 52
_MASK, _FIELD, _BARS = 380, 240, 100


def draw(studio: Any) -> Drawing:
    """The mask on the left; on the right the weights of the chosen row and the field."""
    look, n = THEMES[studio.theme], studio.n
    mask = studio.mask.numpy()
    drawing = Drawing(_WIDE, _HIGH, look)
    drawing.text(_cut(studio.code, 84), 24, 24, size=15, bold=True)
    pairs = int(mask.sum())
    said = f"{pairs:,} of {n * n:,} pairs, {100 * pairs / n**2:.3g} %; n = {n}"
    drawing.text(said, 24, 48, quiet=True)
    _cells(drawing, mask, (_LEFT, _TOP, _MASK, _MASK))
    side = _MASK / n
    y = _TOP + studio.row * side
    drawing.frame(_LEFT - 1.5, y - 1.5, _MASK + 3, side + 3, SERIES[1], 2)
    _positions(drawing, n, (_LEFT, _TOP, _MASK))
    drawing.text("queries down, keys across", _LEFT, _TOP - 32, quiet=True, size=11)
    right = _LEFT + _MASK + 64
    _bars(drawing, studio, right)
    top = _TOP + _BARS + 40
    layers = "1 layer" if studio.layer == 1 else f"{studio.layer} layers"
    drawing.text(f"What each output can know after {layers}", right, top - 14, quiet=True, size=11)
    field = studio.pattern.receptive_field(n, studio.layer, residual=studio.residual)
    _cells(drawing, field.after[-1].numpy(), (right, top, _FIELD, _FIELD))
    return drawing


def _cells(drawing: Drawing, mask: np.ndarray, box: tuple[float, float, float, float]) -> None:
    look = drawing.theme
    drawing.map(mask.astype(int), [look.panel, SERIES[0]], *box)
    x, y, wide, high = box
    drawing.frame(x - 0.5, y - 0.5, wide + 1, high + 1, look.quiet)
    n = len(mask)
    if wide / n >= 7:
        for at in range(1, n):
            place = at * wide / n
            drawing.line([(x + place, y), (x + place, y + high)], look.paper, 0.5)
            drawing.line([(x, y + place), (x + wide, y + place)], look.paper, 0.5)


def _positions(drawing: Drawing, n: int, place: tuple[float, float, float]) -> None:
    x, y, side = place
    step = next(one for one in (1, 2, 4, 8, 16, 32) if n / one <= 16)
    for at in range(0, n, step):
        middle = (at + 0.5) * side / n
        drawing.text(str(at), x + middle, y - 10, anchor="middle", size=11, quiet=True)
        drawing.text(str(at), x - 8, y + middle, anchor="end", size=11, quiet=True)


def _bars(drawing: Drawing, studio: Any, x: float) -> None:
    weights = studio.weights[studio.row].numpy()
    largest = float(weights.max()) or 1.0
    wide, low = _WIDE - x - 40, _TOP + _BARS - 10
    title = f"Weights of row {studio.row}, the largest {weights.max():.2g}"
    drawing.text(title, x, _TOP - 30, quiet=True, size=11)
    step = wide / studio.n
    for key, weight in enumerate(weights):
        high = (_BARS - 22) * float(weight) / largest
        if high > 0.3:
            drawing.box(x + key * step, low - high, max(1, step - 1), high, SERIES[1])
    drawing.line([(x, low), (x + wide, low)], drawing.theme.quiet)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
