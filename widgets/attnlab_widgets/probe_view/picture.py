"""The still picture of ProbeView: a row for each question, with the control as a band."""

import textwrap
from typing import Any

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES

_WIDE, _MARGIN, _NAME, _GAP = 760, 24, 150, 8


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    found = widget.found
    said = textwrap.wrap(widget.description(), 96)
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    theme = drawing.theme
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 36 + 18 * len(said)
    high = max(26, min(56, 460 // len(found.tasks)))
    left, right = _MARGIN + _NAME, _WIDE - 60
    step = (right - left) / max(1, found.layers - 1)
    for number in found.order(widget.order):
        task, chosen = found.tasks[number], number == widget.task

        def y(value: float, top: float = top) -> float:
            return top + high * (1 - (value - found.low) / (1 - found.low))

        drawing.text(task.name, _MARGIN, top + high / 2, bold=chosen, size=12)
        drawing.box(left, top, right - left, high, theme.panel)
        control = [(left + step * at, y(value)) for at, value in enumerate(task.control.mean(0))]
        drawing.patch([*control, (right, top + high), (left, top + high)], theme.grid)
        drawing.line(control, theme.quiet, 1, "3 3")
        curve = [(left + step * at, y(value)) for at, value in enumerate(task.right.mean(0))]
        drawing.line(curve, SERIES[0], 2.4 if chosen else 1.6)
        for row in task.right:
            for at, value in enumerate(row):
                drawing.disc(left + step * at, y(value), 1.8, SERIES[0])
        if chosen:
            x, at = curve[widget.layer]
            drawing.disc(x, at, 6, theme.ink)
            drawing.disc(x, at, 4, SERIES[0])
        drawing.text(f"{100 * task.right[:, -1].mean():.0f} %", right + 10, top + high / 2, size=12)
        top += high + _GAP
    for at in range(found.layers):
        if at % max(1, found.layers // 12) == 0:
            drawing.text(str(at), left + step * at - 3, top + 6, size=11, quiet=True)
    rows = f"the probe reads layers 0 to …; rows from {100 * found.low:.0f} to 100 % right"
    drawing.text(rows, left, top + 24, size=11, quiet=True)
    drawing.box(_MARGIN, top + 1, 20, 10, theme.grid)
    drawing.text("the controls", _MARGIN + 26, top + 6, size=11, quiet=True)
    drawing.high = round(top + 40)
    return drawing
