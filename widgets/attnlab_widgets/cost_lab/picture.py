"""The still picture of CostLab: curves, the reader's claim, counted points and sentences."""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from attnlab.core.growths import GROWTHS
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES
from attnlab_widgets.wall.picture import short

_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 430, 72, 120, 52, 44
_OWN, _CLAIM, _BASE = SERIES[0], SERIES[1], SERIES[4]


def picture(lab: Any) -> Drawing:
    """What is shown in the present state, times apart: those are in the sentences."""
    theme = THEMES[lab.theme]
    said = textwrap.wrap(lab.description(), 118)
    drawing = Drawing(_WIDE, _HIGH + 18 * len(said) + 12, theme)
    title = lab._known[lab.mechanism]["title"]
    drawing.text(f"{title} and full attention: cost against length", 20, 24, bold=True, size=14)
    claim, lengths = lab.claims.get(lab.mechanism), lab.lengths()
    every = [2**power for power in range(6, 21)]
    base = [lab.cost(n, "full") for n in every]
    own = [lab.cost(n) for n in every] if claim else []
    start = lab.cost(lengths[0])
    low = math.floor(math.log10(min(*base, *own, start)))
    high = math.ceil(math.log10(max(*base, *own)))

    def place(n: float, cost: float) -> tuple[float, float]:
        along = math.log2(n / every[0]) / math.log2(every[-1] / every[0])
        up = (math.log10(cost) - low) / (high - low)
        x = _LEFT + (_WIDE - _LEFT - _RIGHT) * along
        return x, _HIGH - _BOTTOM - (_HIGH - _TOP - _BOTTOM) * up

    for power in range(low, high + 1, -(-(high - low) // 6)):
        (x, y), (end, _) = place(every[0], 10.0**power), place(every[-1], 10.0**power)
        drawing.line([(x, y), (end, y)], theme.grid)
        drawing.text(short(10.0**power), x - 8, y + 4, anchor="end", size=11, quiet=True)
    for n in every[::2]:
        x, y = place(n, 10.0**low)
        drawing.text(f"{n:,}", x, y + 18, anchor="middle", size=10, quiet=True)
    unit = "FLOPs" if lab.quantity == "time" else "elements of the largest tensor"
    drawing.text(f"{unit} against length n (tokens)", 400, _HIGH - 6, anchor="middle", quiet=True)
    _curve(drawing, place, every, base, _BASE, "full attention", "7 3")
    if own and lab.mechanism != "full":
        _curve(drawing, place, every, own, _OWN, title[:18], "")
    for name in [claim] if claim else GROWTHS:
        grows = GROWTHS[name]
        ahead = [n for n in every if n >= lengths[0]]
        line = [start * grows(n) / grows(lengths[0]) for n in ahead]
        seen = [(n, cost) for n, cost in zip(ahead, line, strict=True) if cost <= 10.0**high]
        said_here = "" if claim else name
        shown, costs = [n for n, _ in seen], [cost for _, cost in seen]
        _curve(drawing, place, shown, costs, _CLAIM, said_here, "2 4")
    if claim and lab.quantity == "time":
        for n, cost in lab.counted().items():
            drawing.disc(*place(n, cost), 4, _OWN)
    if claim:
        drawing.text(f"dotted: claimed, {claim}; discs: counted", _LEFT + 8, _TOP + 14, size=11)
    for at, sentence in enumerate(said):
        drawing.text(sentence, 20, _HIGH + 16 + 18 * at)
    return drawing


def _curve(
    drawing: Drawing, place: Callable[[float, float], tuple[float, float]], lengths: Sequence[int],
    costs: Sequence[float], colour: str, name: str, dash: str,
) -> None:  # fmt: skip
    points = [place(n, cost) for n, cost in zip(lengths, costs, strict=True)]
    drawing.line(points, colour, 2, dash)
    drawing.text(name, points[-1][0] + 6, points[-1][1] + 4, colour=colour, size=11)
