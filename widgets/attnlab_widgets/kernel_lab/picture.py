"""The still picture of KernelLab: the three maps, and the error against the number of features."""

import math
import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, DARK, SERIES, SIGNED, THEMES, blend
from attnlab.lens.kernel_maps import KINDS
from attnlab_widgets.kernel_lab import words
from attnlab_widgets.legend import draw_weights

_WIDE, _MARGIN, _SIDE, _NAMES, _ABOVE, _GAP = 984, 24, 244, 56, 46, 12
_STEPS, _HIGH, _LEFT, _LONG = 64, 176, 52, 400
_AMOUNTS = [blend(CIVIDIS, at / _STEPS) for at in range(_STEPS + 1)]
LEAST, MOST = 0.004, 3.0
"""The shares between which errors are drawn, on a logarithmic axis."""
SMALLEST, LARGEST = 2, 13
"""Powers of two: numbers of features between which they are drawn; more where there are more."""


def picture(lab: Any) -> Drawing:
    """What the widget shows in its present state."""
    drawing = Drawing(_WIDE, 10, THEMES[lab.theme])
    said = textwrap.wrap(lab.description(), 126)
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 34 + 18 * len(said)
    seen, head = lab.approximation, lab._heads[lab.head]
    maps = (("exact softmax", seen.exact), (KINDS[lab.feature], seen.map),
            ("the difference", seen.map - seen.exact))  # fmt: skip
    for at, (title, map) in enumerate(maps):
        _map(drawing, _MARGIN + at * (_NAMES + _SIDE + _GAP), top, (title, map), at == 2, lab, head)
    top += _ABOVE + 18 + _SIDE + 22
    draw_weights(drawing, _MARGIN, top)
    _key(drawing, 610, top)
    _curve(drawing, lab, top + 22)
    _tried(drawing, lab, top + 22)
    drawing.high = round(top + 22 + 26 + _HIGH + 46)
    return drawing


def _map(
    drawing: Drawing, left: float, top: float, named: Any, both: bool, lab: Any, head: Any
) -> None:
    """One map with names of rows and columns; signed ones in the colours of both signs."""
    title, values = named[0], named[1].numpy()
    n, m = values.shape
    x, y = left + _NAMES, top + 14 + _ABOVE
    drawing.text(title, x, top, bold=True, size=13)
    signed = both or bool((values < -1e-9).any())
    share = np.sign(values) * np.sqrt(np.abs(values).clip(0, 1))
    levels = (share + 1) / 2 * _STEPS if signed else share.clip(0) * _STEPS
    drawing.map(np.rint(levels).astype(int), _signed(drawing) if signed else _AMOUNTS, x, y,
                _SIDE, _SIDE)  # fmt: skip
    if lab._causal:
        drawing.hatch(~np.tri(n, m, m - n, dtype=bool), x, y, _SIDE, _SIDE)
    if lab._causal and n == m:  # the first query has one key, and gives it all of its weight
        drawing.box(x, y, _SIDE / m, _SIDE / n, drawing.theme.paper, drawing.theme.quiet)
    drawing.frame(x - 0.5, y - 0.5, _SIDE + 1, _SIDE + 1, drawing.theme.grid)
    step = max(1, -(-max(n, m) // 20))
    for i in range(0, n, step):
        row = y + (i + 0.5) * _SIDE / n
        drawing.text(_short(head.names[i]), x - 6, row, anchor="end", quiet=True, size=11)
    for j in range(max(0, m - n), m, step):
        across = x + (j + 0.5) * _SIDE / m
        drawing.text(_short(head.key(j)), across, y - 5, quiet=True, turned=True, size=11)


def _signed(drawing: Drawing) -> list[str]:
    dark = ("#8cc8ff", "#2f7fc1", "#22262d", "#c8661a", "#ffbe85")
    scale = dark if drawing.theme == DARK else SIGNED
    return [blend(scale, at / _STEPS) for at in range(_STEPS + 1)]


def _key(drawing: Drawing, x: float, y: float) -> None:
    drawing.text("difference −1: too little", x, y, quiet=True, size=11)
    drawing.map(np.arange(_STEPS + 1)[None], _signed(drawing), x + 138, y - 5, 70, 10)
    drawing.text("+1: too much", x + 214, y, quiet=True, size=11)


def _short(word: str) -> str:
    return word if len(word) <= 7 else word[:6] + "…"


def place(count: float, error: float, most: float) -> tuple[float, float]:
    """Where a point stands between the axes, from 0 to 1 across and down."""
    shown = min(max(error, LEAST), MOST)
    across = (math.log2(count) - SMALLEST) / (most - SMALLEST)
    return max(0.0, across), math.log(MOST / shown) / math.log(MOST / LEAST)


def _curve(drawing: Drawing, lab: Any, top: float) -> None:
    """The error against the number of features, and the settings that were tried, numbered."""
    theme = drawing.theme
    drawing.text("Attention in the wrong place, by features per token", _MARGIN, top + 4, bold=True,
                 size=13)  # fmt: skip
    left, y0 = _MARGIN + _LEFT, top + 22
    width = lab._heads[lab.head].width
    counts = {number: _count(lab, number, width) for number in lab.errors()}
    tried = [(one, _count_of(lab, one)) for one in lab.tried]
    all_counts = [*counts.values(), *(count for _, count in tried)]
    most = max(LARGEST, math.ceil(math.log2(max([1, *(each for each in all_counts if each)]))))

    def at(count: float, error: float) -> tuple[float, float]:
        x, y = place(count, error, most)
        return left + x * _LONG, y0 + y * _HIGH

    for share in (0.01, 0.1, 1.0):
        _, y = at(1, share)
        drawing.line([(left, y), (left + _LONG, y)], theme.grid)
        drawing.text(f"{100 * share:.0f} %", left - 8, y, anchor="end", quiet=True, size=11)
    for power in range(SMALLEST, most + 1, 2):
        x, _ = at(2.0**power, 1)
        name = f"{2**power:,}"
        drawing.text(name, x, y0 + _HIGH + 14, anchor="middle", quiet=True, size=11)
    points = [at(count, error) for (number, error) in lab.errors().items()
              if (count := counts[number])]  # fmt: skip
    if len(points) == 1:
        points = [(left, points[0][1]), (left + _LONG, points[0][1])]
    if points:
        drawing.line(points, SERIES[0], 2)
    for number, (one, count) in enumerate(tried, start=1):
        if count is None:
            continue
        x, y = at(count, lab._error(one))
        now = number == len(tried)
        drawing.disc(x, y, 5 if now else 4, SERIES[1] if now else theme.quiet)
        drawing.text(str(number), x + 7, y - 8, size=11, bold=now)


def _count(lab: Any, number: int, width: int) -> int | None:
    return _count_of(lab, lab._present() | {"features": number})


def _count_of(lab: Any, setting: dict[str, Any]) -> int | None:
    found: int | None = lab.choice_of(setting).count(lab._heads[setting["head"]].width)
    return found


def _tried(drawing: Drawing, lab: Any, top: float) -> None:
    x = _MARGIN + _LEFT + _LONG + 40
    drawing.text("Tried, and in the wrong place", x, top + 4, bold=True, size=13)
    for at, one in enumerate(lab.tried):
        y = top + 30 + 20 * at
        drawing.text(str(at + 1), x + 10, y, anchor="end", quiet=True, size=11)
        said = textwrap.shorten(lab.said(one), 68, placeholder=" …")
        drawing.text(said, x + 18, y, size=11)
        share = words.percent(lab._error(one))
        drawing.text(share, _WIDE - _MARGIN, y, anchor="end", size=11, bold=True)
