"""The still picture of the position explorer: curves, a map, and arrows turned by hand."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.figures.theme import KEY, QUERY, SERIES, SIGNED, THEMES, blend

_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 300, 56, 96, 40, 44
_SIDE, _DIAL, _LEVELS = 216, 50, 255
_COLOURS = (*SERIES, "#8a5a00")
_DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 4")


def drawn(widget: Any) -> Drawing:
    """The curves, the map of the chosen scheme, and the arrows of query and key."""
    drawing = Drawing(_WIDE + _SIDE + 60, _HIGH + 2 * _DIAL + 84, THEMES[widget.theme])
    _curves(widget, drawing)
    _map(widget, drawing, _WIDE + 28, _TOP)
    _dials(widget, drawing, _HIGH + 20)
    return drawing


def _curves(widget: Any, drawing: Drawing) -> None:
    n, looks = widget.n, {one["name"]: one["look"] for one in widget._schemes}
    thick = {name: widget.curve(name, widget.head_of(name)) for name in widget.shown}
    thin = [
        widget.curve(widget.scheme, head)
        for head in range(len(widget._maps[widget.scheme]))
        if widget.scheme in thick and head != widget.head
    ]
    values = np.concatenate([np.zeros(1), *thick.values(), *thin])
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * ((high - low) or 1)
    low, high = low - margin, high + margin

    def across(t: float) -> float:
        return _LEFT + t / max(1, n - 1) * (_WIDE - _LEFT - _RIGHT)

    def down(score: float) -> float:
        return _TOP + (high - score) / (high - low) * (_HIGH - _TOP - _BOTTOM)

    def path(curve: NDArray[np.float64]) -> list[tuple[float, float]]:
        return [(across(t), down(float(score))) for t, score in enumerate(curve)]

    title = f"Score against distance, head {widget.head}"
    drawing.text(title, _LEFT, 17, size=15, bold=True)
    for score in _ticks(low, high):
        drawing.line([(_LEFT, down(score)), (_WIDE - _RIGHT, down(score))], drawing.theme.grid)
        label = f"{score:g}".replace("-", "−")
        drawing.text(label, _LEFT - 6, down(score), anchor="end", size=11, quiet=True)
    for t in sorted({0, (n - 1) // 2, n - 1}):
        place = (across(t), _HIGH - _BOTTOM + 14)
        drawing.text(str(t), *place, anchor="middle", size=11, quiet=True)
    others = f"; thin: other heads of {visible(widget.scheme)}" if thin else ""
    below = f"distance: query position − key position{others}"
    drawing.text(below, _LEFT, _HIGH - 12, quiet=True)
    for curve in thin:
        drawing.line(path(curve), _COLOURS[looks[widget.scheme]], 1, _DASHES[looks[widget.scheme]])
    ends = _apart([down(float(curve[-1])) for curve in thick.values()], 15)
    for (name, curve), end in zip(thick.items(), ends, strict=True):
        look = looks[name]
        drawing.line(path(curve), _COLOURS[look], 2, _DASHES[look])
        drawing.text(visible(name), _WIDE - _RIGHT + 8, end, colour=_COLOURS[look])


def _map(widget: Any, drawing: Drawing, x: float, y: float) -> None:
    """The scores of the chosen scheme and head, blue below zero and orange above."""
    scores = widget._maps[widget.scheme][widget.head]
    past = np.tril(np.ones(scores.shape, bool))
    largest = float(np.abs(scores[past]).max())
    share = np.where(past, scores, 0) / (largest or 1)
    levels = np.rint((share + 1) / 2 * (_LEVELS - 1)).astype(int)
    drawing.text(f"Every pair: {visible(widget.scheme)}", x, 12, size=15, bold=True)
    palette = [blend(SIGNED, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    drawing.map(levels, palette, x, y, _SIDE, _SIDE)
    drawing.hatch(~past, x, y, _SIDE, _SIDE)
    drawing.frame(x, y, _SIDE, _SIDE, drawing.theme.quiet)
    drawing.text("key position →", x, y - 10, size=11, quiet=True)
    scale = f"blue −{largest:.1f}, orange +{largest:.1f}" if largest else "every score is 0"
    drawing.text(scale, x, y + _SIDE + 14, size=11, quiet=True)
    drawing.text("rows: queries; hatched: later keys", x, y + _SIDE + 32, size=11, quiet=True)


def _dials(widget: Any, drawing: Drawing, top: float) -> None:
    """Query and key in each pair of coordinates, as two arrows."""
    title = f"RoPE by hand: query ● at {widget.query}, key ◆ at {widget.key}"
    drawing.text(title, _LEFT, top, size=15, bold=True)
    middle, step = top + 26 + _DIAL, (_WIDE + _SIDE - _LEFT) / (widget.head_dim // 2)
    for pair, (theta, angles) in enumerate(zip(widget.theta, widget.turned(), strict=True)):
        x = _LEFT + _DIAL + step * pair
        rim = np.linspace(0, 2 * math.pi, 49)
        circle = [(x + _DIAL * math.cos(a), middle + _DIAL * math.sin(a)) for a in rim]
        drawing.line(circle, drawing.theme.grid)
        for angle, (colour, _), length in zip(angles, (QUERY, KEY), (42, 34), strict=True):
            a, b = x + length * math.cos(angle), middle - length * math.sin(angle)
            drawing.line([(x, middle), (a, b)], colour, 3)
            if colour == QUERY[0]:
                drawing.disc(a, b, 5.5, colour)
            else:
                drawing.patch([(a + 6, b), (a, b + 6), (a - 6, b), (a, b - 6)], colour)
        between = round(math.degrees(math.remainder(angles[1] - angles[0], 2 * math.pi)))
        said = f"θ = {theta:g} · Δ = {between}°".replace("-", "−")
        drawing.text(said, x, middle + _DIAL + 16, anchor="middle", quiet=True)


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(k * step, 9) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _apart(wanted: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved apart to at least ``gap``, and back up where they leave the page."""
    placed = [0.0] * len(wanted)
    last = -math.inf
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for at in order:
        placed[at] = last = max(wanted[at], last + gap)
    ceiling = float(_HIGH - _BOTTOM)
    for at in reversed(order):
        placed[at] = min(placed[at], ceiling)
        ceiling = placed[at] - gap
    return placed
