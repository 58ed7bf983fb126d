"""The still picture of KernelLab: the three maps, and the error against the number of features."""

import math
import textwrap
from collections.abc import Collection
from dataclasses import dataclass
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
_LONGEST = 66  # letters of a setting that was tried
LEAST, MOST = 0.004, 3.0
"""The shares between which errors are drawn, on a logarithmic axis; it grows to those beyond."""
LOWEST = 1e-6
"""Shares below it stand at the lower end: a logarithmic axis has no place for none."""
SMALLEST, LARGEST = 2, 13
"""Powers of two: numbers of features between which they are drawn; it grows likewise."""


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
    if is_signed(seen.map.numpy()):
        top += 18
        _signed_key(drawing, top, words.reach(seen))
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
    signed = both or is_signed(values)
    share = np.sign(values) * np.sqrt(np.abs(values).clip(0, 1))
    levels = (share + 1) / 2 * _STEPS if signed else share.clip(0) * _STEPS
    drawing.map(np.rint(levels).astype(int), _signed(drawing) if signed else _AMOUNTS, x, y,
                _SIDE, _SIDE)  # fmt: skip
    if lab._causal:
        drawing.hatch(~np.tri(n, m, m - n, dtype=bool), x, y, _SIDE, _SIDE)
    if not both and lab._causal and n == m and abs(values[0, 0] - 1) < 1e-3:
        # the only key of the first query, which has all of its weight
        drawing.box(x, y, _SIDE / m, _SIDE / n, drawing.theme.paper, drawing.theme.quiet)
    drawing.frame(x - 0.5, y - 0.5, _SIDE + 1, _SIDE + 1, drawing.theme.grid)
    step = max(1, -(-max(n, m) // 20))
    for i in range(0, n, step):
        row = y + (i + 0.5) * _SIDE / n
        drawing.text(_short(head.names[i]), x - 6, row, anchor="end", quiet=True, size=11)
    for j in range(max(0, m - n), m, step):
        across = x + (j + 0.5) * _SIDE / m
        drawing.text(_short(head.key(j)), across, y - 5, quiet=True, turned=True, size=11)


def is_signed(values: np.ndarray) -> bool:
    """Whether some weights are below zero, by more than rounding."""
    return bool((values < -1e-9).any())


def _signed(drawing: Drawing) -> list[str]:
    dark = ("#8cc8ff", "#2f7fc1", "#22262d", "#c8661a", "#ffbe85")
    scale = dark if drawing.theme == DARK else SIGNED
    return [blend(scale, at / _STEPS) for at in range(_STEPS + 1)]


def _key(drawing: Drawing, x: float, y: float) -> None:
    drawing.text("difference −1: too little", x, y, quiet=True, size=11)
    drawing.map(np.arange(_STEPS + 1)[None], _signed(drawing), x + 138, y - 5, 70, 10)
    drawing.text("+1: too much", x + 214, y, quiet=True, size=11)


def _signed_key(drawing: Drawing, y: float, reach: str) -> None:
    drawing.text("weights of both signs: −1", _MARGIN, y, quiet=True, size=11)
    drawing.map(np.arange(_STEPS + 1)[None], _signed(drawing), _MARGIN + 146, y - 5, 70, 10)
    said = f"+1; {reach}" if reach else "+1"
    drawing.text(said, _MARGIN + 222, y, quiet=True, size=11)


def _short(word: str, longest: int = 7) -> str:
    return word if len(word) <= longest else word[: longest - 1] + "…"


@dataclass(frozen=True)
class Axes:
    """What the curve is drawn between: powers of two of features, and shares; both logarithmic."""

    smallest: int
    largest: int
    least: float
    most: float

    @classmethod
    def around(cls, points: Collection[tuple[float, float]]) -> "Axes":
        """Axes that hold all of these (count, error), and never less than is usual."""
        counts, errors = zip(*points, strict=True) if points else ((), ())
        smallest = math.floor(math.log2(min(counts, default=2**SMALLEST)))
        largest = math.ceil(math.log2(max(counts, default=1)))
        least = min([LEAST, *(each for each in errors if each >= LOWEST)])
        most = max([MOST, *errors])
        return cls(
            smallest=min(SMALLEST, smallest - smallest % 2),
            largest=max(LARGEST, largest),
            least=LEAST if least == LEAST else 10.0 ** math.floor(math.log10(least)),
            most=MOST if most == MOST else 10.0 ** math.ceil(math.log10(most)),
        )

    def place(self, count: float, error: float) -> tuple[float, float]:
        """Where a point stands, from 0 to 1 across and down."""
        across = (math.log2(count) - self.smallest) / (self.largest - self.smallest)
        shown = max(error, self.least)
        return across, math.log(self.most / shown) / math.log(self.most / self.least)

    @property
    def shares(self) -> list[float]:
        """Powers of ten that get a line: six at most."""
        first = math.ceil(math.log10(self.least) - 1e-9)
        last = math.floor(math.log10(self.most) + 1e-9)
        step = -(-(last - first + 1) // 6)
        return [10.0**power for power in range(first, last + 1) if power % step == 0]


def said_share(share: float) -> str:
    """A power of ten as a percentage at the axis."""
    power = round(math.log10(share)) + 2
    return f"{10.0**power:,.{max(0, -power)}f} %" if power < 5 else f"10^{power} %"


def _curve(drawing: Drawing, lab: Any, top: float) -> None:
    """The error against the number of features, and the settings that were tried, numbered."""
    theme = drawing.theme
    title = "Attention in the wrong place, by features per token"
    if lab.choice.random:
        title += f", seed {lab.seed}"
    drawing.text(title, _MARGIN, top + 4, bold=True, size=13)
    left, y0 = _MARGIN + _LEFT, top + 22
    width = lab._heads[lab.head].width
    counts = {number: _count(lab, number, width) for number in lab.errors()}
    tried = [(one, _count_of(lab, one)) for one in lab.tried]
    marked = [(count, lab._error(one)) for one, count in tried if count]
    errors = lab.errors().items()
    known = [(count, error) for number, error in errors if (count := counts[number])]
    axes = Axes.around([*known, *marked])

    def at(count: float, error: float) -> tuple[float, float]:
        x, y = axes.place(count, error)
        return left + x * _LONG, y0 + y * _HIGH

    for share in axes.shares:
        _, y = at(4, share)
        drawing.line([(left, y), (left + _LONG, y)], theme.grid)
        drawing.text(said_share(share), left - 8, y, anchor="end", quiet=True, size=11)
    for power in range(axes.smallest, axes.largest + 1, 2):
        x, _ = at(2.0**power, 1)
        name = f"{2**power:,}"
        drawing.text(name, x, y0 + _HIGH + 14, anchor="middle", quiet=True, size=11)
    points = [at(*one) for one in known]
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
        drawing.text(_short(lab.said(one), _LONGEST), x + 18, y, size=11)
        share = words.percent(lab._error(one))
        drawing.text(share, _WIDE - _MARGIN, y, anchor="end", size=11, bold=True)
