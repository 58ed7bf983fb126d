"""The still picture of CompressionLab: the weights with the cut, a matrix and an attention map
before and after, and what is right against the share that is kept."""

import textwrap
from typing import Any

import numpy as np
from torch import nn

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, SIGNED, THEMES, blend
from attnlab.lens.smaller import pruned
from attnlab_widgets.compression_lab import grids

_WIDE, _MARGIN = 920, 24
_BINS, _SIDE, _MAP = 41, 150, 205
_AMOUNTS = [blend(CIVIDIS, at / 63) for at in range(64)]
_DIFFERENCES = [blend(SIGNED, at / 64) for at in range(65)]


def picture(lab: Any) -> Drawing:
    """What the widget shows in its present state."""
    said = textwrap.wrap(lab.description(), 118)
    top = 30 + 18 * len(said)
    drawing = Drawing(_WIDE, top + 190 + _MAP + 76, THEMES[lab.theme])
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 22 + 18 * at, bold=True, size=13)
    masked, made = pruned(lab.network, lab.settings, lab.order), lab.compressed()
    _histogram(drawing, lab, masked, _MARGIN, top)
    before, after = (_weight(each, lab.matrix) for each in (lab.network, made))
    scale = float(np.abs(before).max()) or 1.0
    for at, (word, W) in enumerate((("before", before), ("after", after))):
        x = 330 + at * (_SIDE + 14)
        drawing.text(word, x, top + 4, quiet=True)
        _map(drawing, _signed(W / scale), _DIFFERENCES, x, top + 16, _SIDE)
    drawing.text(_short(lab.matrix), 330, top + 16 + _SIDE + 14, size=11, quiet=True)
    _curve(drawing, lab, 690, top)
    _maps(drawing, lab, top + 206)
    return drawing


def _short(name: str) -> str:
    return name.removesuffix(".weight")[-44:]


def _weight(model: nn.Module, name: str) -> Any:
    layer: Any = model.get_submodule(name.removesuffix(".weight"))
    return layer.weight.detach().float().cpu().numpy()


def _signed(values: Any) -> Any:
    """Places in the palette of differences, by the square root of the size."""
    return np.rint(32 + 32 * np.sign(values) * np.sqrt(np.abs(values).clip(0, 1))).astype(int)


def _map(drawing: Drawing, levels: Any, palette: list[str], x: float, y: float, side: int) -> None:
    rows, columns = levels.shape
    wide = side if columns >= rows else max(8, side * columns / rows)
    high = side if rows >= columns else max(8, side * rows / columns)
    drawing.map(levels, palette, x, y, wide, high)


def _histogram(drawing: Drawing, lab: Any, masked: nn.Module, x: float, top: float) -> None:
    together = lab.cut == "all weights"
    names = lab._told["matrices"] if together else [lab.matrix]
    before = np.concatenate([_weight(lab.network, name).ravel() for name in names])
    gone = np.concatenate([_weight(masked, name).ravel() for name in names]) != before
    most = float(np.abs(before).max()) or 1.0
    counts = [np.histogram(part, _BINS, (-most, most))[0] for part in (before[gone], before[~gone])]
    drawing.text("weights: " + ("all matrices" if together else "this matrix"), x, top + 4)
    wide, high, tallest = 280, 130, max(1, int(np.sum(counts, 0).max()))
    floor = top + 16 + high
    for at in range(_BINS):
        left, up = x + at * wide / _BINS, 0.0
        for count, colour in zip(counts, (SERIES[1], SERIES[0]), strict=True):
            tall = high * int(count[at]) / tallest
            if tall:
                drawing.box(left, floor - up - tall, wide / _BINS - 1, tall, colour)
            up += tall
    drawing.line([(x, floor), (x + wide, floor)], drawing.theme.grid)
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        words = f"{most * (2 * share - 1):.2f}"
        drawing.text(words, x + wide * share, floor + 14, anchor=anchor, size=11, quiet=True)
    drawing.text("blue: kept, orange: cut", x, floor + 32, size=11, quiet=True)


def _curve(drawing: Drawing, lab: Any, x: float, top: float) -> None:
    drawing.text("right answers, by share kept", x, top + 4)
    wide, high = 190, 130
    floor = top + 16 + high

    def place(kept: float, right: float) -> tuple[float, float]:
        return x + 20 + wide * (1 - kept), floor - high * right

    for right in (0.0, 0.5, 1.0):
        drawing.line([place(1, right), place(0, right)], drawing.theme.grid)
        words = f"{100 * right:.0f}"
        drawing.text(words, x + 14, floor - high * right, anchor="end", size=10, quiet=True)
    whole = lab.whole_score()
    drawing.line([place(1, whole), place(0, whole)], drawing.theme.quiet, 1, "6 4")
    grid = lab._scores.get(grids.key(lab.student, lab.cut, lab.per))
    if grid is None:
        return
    found = [
        (kept, *grids.score_at(grid, grids.place(kept, lab.bits), lab._lab["rows"]))
        for kept in grids.SHARES
    ]
    for at in (2, 3):
        drawing.line([place(one[0], one[at]) for one in found], SERIES[0], 1, "2 3")
    drawing.line([place(kept, right) for kept, right, *_ in found], SERIES[0], 2)
    now = next(one for one in found if one[0] == lab.kept)
    drawing.line([place(now[0], now[2]), place(now[0], now[3])], SERIES[1], 2)
    drawing.disc(*place(now[0], now[1]), 5, SERIES[1])
    drawing.text("100 %", x + 20, floor + 14, size=11, quiet=True)
    drawing.text("0 %", x + 20 + wide, floor + 14, anchor="end", size=11, quiet=True)


def _maps(drawing: Drawing, lab: Any, top: float) -> None:
    before, after = lab.maps()
    if not before:
        drawing.text("This model has no attention weights to show.", _MARGIN, top + 20, quiet=True)
        return
    one, other = (each[lab.layer][lab.head].numpy() for each in (before, after))
    name = lab._lab["examples"][lab.example]["name"]
    words = f"attention of layer {lab.layer}, head {lab.head}; example: {name}"
    drawing.text(words, _MARGIN, top, size=12)
    later = ~np.tri(len(one), dtype=bool)
    causal = lab._told["causal"]
    shown = (
        ("before", np.rint(63 * np.sqrt(one)).astype(int), _AMOUNTS),
        ("after", np.rint(63 * np.sqrt(other)).astype(int), _AMOUNTS),
        ("difference", _signed(other - one), _DIFFERENCES),
    )
    for at, (word, levels, palette) in enumerate(shown):
        x = _MARGIN + at * (_MAP + 40)
        drawing.text(word, x, top + 18, size=11, quiet=True)
        drawing.map(levels, palette, x, top + 28, _MAP, _MAP)
        if causal:
            drawing.hatch(later, x, top + 28, _MAP, _MAP)
