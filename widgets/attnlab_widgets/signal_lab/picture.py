"""The still picture of SignalLab: poles, kernel and map; signal, state and output."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from attnlab.core.convolution import toeplitz
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, SIGNED, THEMES, blend
from attnlab_widgets.legend import draw_untrained
from attnlab_widgets.words import two

_WIDE, _MARGIN, _TOP, _SIDE, _LOW, _LEVELS = 920, 24, 78, 256, 122, 41
_COLUMNS = [_MARGIN + at * 300 + 24 for at in range(3)]
_SIGNAL, _KERNEL, _OUTPUT = SERIES[0], SERIES[1], SERIES[3]
Box = tuple[float, float, float, float]


def picture(lab: Any) -> Drawing:
    """What the widget shows in its present state."""
    below = _TOP + _SIDE + 50
    drawing = Drawing(_WIDE, below + _LOW + 24, THEMES[lab.theme])
    untrained = lab.shows_untrained
    for at, line in enumerate(textwrap.wrap(lab.description(), 102 if untrained else 116)):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    if untrained:
        draw_untrained(drawing, _WIDE - _MARGIN - 52, 20)
    left, middle, right = _COLUMNS
    found, half = lab.impulse_response().tolist(), _SIDE / 2 - 18
    kernel = cut(found)
    own = "" if kernel == found else f": itself {two(found[0])}, not to scale"
    if lab.taps:
        _series(drawing, "Taps", lab.taps, (left, _TOP, _SIDE, _SIDE), _KERNEL)
    else:
        _plane(drawing, lab.poles, (left, _TOP, _SIDE, _SIDE))
    _series(drawing, f"Impulse response{own}", kernel, (middle, _TOP, _SIDE, half), _KERNEL)
    box = (middle, _TOP + half + 36, _SIDE, half)
    _spectrum(drawing, lab.spectrum().tolist(), box)
    taken = toeplitz(torch.tensor(kernel)).numpy()
    _map(drawing, "The map: row i, what i takes", taken, (right, _TOP, _SIDE, _SIDE))
    if own:
        drawing.text("diagonal not to scale", right, _TOP + _SIDE + 12, quiet=True, size=11)
    rows = ((left, "Signal", lab.signal, _SIGNAL), (right, "Output", lab.output(), _OUTPUT))
    for x, title, values, colour in rows:
        _series(drawing, title, [float(value) for value in values], (x, below, _SIDE, _LOW), colour)
    states = lab.states().real.numpy().T
    name = "State: the newest inputs" if lab.taps else "State: real parts of the modes"
    _map(drawing, name, states, (middle, below, _SIDE, _LOW))
    return drawing


def cut(kernel: Sequence[float]) -> list[float]:
    """The kernel as it is drawn: what a token takes of itself is cut to the largest other number,
    by sign, where it is more than twice as large and would hide the others; as in signals.js."""
    own, *others = kernel
    most = max(map(abs, others), default=0.0)
    return [math.copysign(most, own) if 0 < 2 * most < abs(own) else own, *others]


def _title(drawing: Drawing, text: str, box: Box) -> None:
    drawing.text(text, box[0], box[1] - 12, bold=True)
    drawing.frame(*box, drawing.theme.grid)


def _plane(drawing: Drawing, poles: Sequence[Sequence[float]], box: Box) -> None:
    """The poles and their conjugates; the right half, where responses grow, is shaded."""
    x, y, w, h = box
    up, across = extents(poles)
    drawing.box(x + w / 2, y, w / 2, h, drawing.theme.panel)
    _title(drawing, "Poles A", box)
    drawing.line([(x, y + h / 2), (x + w, y + h / 2)], drawing.theme.grid)
    drawing.line([(x + w / 2, y), (x + w / 2, y + h)], drawing.theme.grid)
    drawing.text("would grow", x + 0.75 * w, y + h - 12, anchor="middle", quiet=True, size=11)
    drawing.text(f"−{two(across)}", x + 4, y + h / 2 + 10, quiet=True, size=11)
    drawing.text(f"{two(up)} i", x + w / 2 + 4, y + 9, quiet=True, size=11)
    for real, turn in poles:
        place = x + w / 2 * (1 + real / across)
        for sign, colour in ((-1, drawing.theme.quiet), (1, _KERNEL)):
            drawing.disc(place, y + h / 2 * (1 - sign * turn / up), 5, colour)


def extents(poles: Sequence[Sequence[float]]) -> tuple[float, float]:
    """How far the picture of the plane reaches, up and to each side."""
    up = max(8.0, 1.3 * max(abs(turn) for _, turn in poles))
    return up, max(2.0, 2 * max(abs(real) for real, _ in poles))


def _series(drawing: Drawing, title: str, values: Sequence[float], box: Box, colour: str) -> None:
    """A bar for each number, from 0."""
    x, y, w, h = box
    _title(drawing, title, box)
    low, high = min(0.0, *values), max(0.0, *values)
    unit = (h - 8) / max(high - low, 1e-9)
    zero, wide = y + 4 + high * unit, w / len(values)
    for at, value in enumerate(values):
        top = zero - max(value, 0.0) * unit
        drawing.box(x + at * wide, top, max(0.8, 0.8 * wide), max(1, abs(value) * unit), colour)
    for value in {low, high} - {0.0}:
        text = two(value)
        drawing.text(text, x - 4, zero - value * unit, anchor="end", quiet=True, size=10)


def _spectrum(drawing: Drawing, values: Sequence[float], box: Box) -> None:
    x, y, w, h = box
    _title(drawing, "Spectrum of the kernel", box)
    largest = max(*values, 1e-9)
    points = [
        (x + w * at / (len(values) - 1), y + h - 2 - (h - 8) * value / largest)
        for at, value in enumerate(values)
    ]
    drawing.line(points, _KERNEL, 2)
    drawing.text(two(largest), x - 4, y + 6, anchor="end", quiet=True, size=10)
    drawing.text("0 to half a turn per token", x + w, y + h + 9, anchor="end", quiet=True, size=10)


def _map(drawing: Drawing, title: str, values: Any, box: Box) -> None:
    """Blue below 0, orange above; roots, so that small numbers show."""
    largest = max(float(np.abs(values).max()), 1e-9)
    share = np.sign(values) * np.sqrt(np.abs(values) / largest)
    palette = [blend(SIGNED, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    drawing.map(np.rint((share + 1) / 2 * (_LEVELS - 1)).astype(int), palette, *box)
    _title(drawing, title, box)
