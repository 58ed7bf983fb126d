"""The still picture of Walk: the map of the step, the answer, and the heads."""

import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, DARK, SERIES, SIGNED, THEMES, blend
from attnlab_widgets.legend import draw_weights
from attnlab_widgets.walk import words
from attnlab_widgets.words import clipped

_WIDE, _MARGIN, _LEFT, _SIDE, _HIGH = 952, 24, 560, 112, 300
_STEPS = 64
_AMOUNTS = [blend(CIVIDIS, at / _STEPS) for at in range(_STEPS + 1)]
_ANSWERS = 6


def picture(walk: Any) -> Drawing:
    """What the widget shows in its present state."""
    run, ids, network = walk.run(), walk.tokens(), walk.network
    drawing = Drawing(_WIDE, 10, THEMES[walk.theme])
    said = textwrap.wrap(walk.description(), 122)
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 32 + 18 * len(said)
    shown = "".join(network.shown[token] for token in ids)
    drawing.text(clipped(shown, 110), _MARGIN, top, size=14)
    top += 28
    low = _step(drawing, walk, run, ids, top)
    right = _answer(drawing, walk, run, ids, top)
    right = _heads(drawing, walk, run, right + 24)
    drawing.high = round(max(low, right) + 16)
    return drawing


def _step(drawing: Drawing, walk: Any, run: Any, ids: list[int], top: float) -> float:
    step, n = walk.steps[walk.step], len(ids)
    values = run[step.key].numpy()
    if values.ndim == 3:
        values = values[walk.head_of(int(step.key.partition(".")[0]))]
    masked = ~np.isfinite(values)
    square = step.kind in ("scores", "weights")
    if step.kind == "weights":
        masked = np.triu(np.ones((n, n), bool), 1)
    row = min(26.0, _HIGH / n)
    high = n * row
    wide = high if square else _LEFT - 24
    name = f"{step.part}: {step.name}"
    drawing.text(name, _MARGIN, top, bold=True)
    y, x = top + 14, _MARGIN + 24
    if row >= 9:
        for i, token in enumerate(ids):
            look = {"size": min(12, int(row)), "bold": i == walk.place, "anchor": "end"}
            drawing.text(walk.network.shown[token][:3], x - 6, y + (i + 0.5) * row, **look)
    levels, palette = _coloured(drawing, np.where(masked, 0, values), step.kind)
    drawing.map(levels, palette, x, y, wide, high)
    if masked.any():
        drawing.hatch(masked, x, y, wide, high)
    drawing.frame(x - 1, y + walk.place * row - 1, wide + 2, row + 2, SERIES[1], 2)
    foot = y + high + 20
    if step.kind in ("weights", "chances"):
        name = "weight" if step.kind == "weights" else "probability"
        draw_weights(drawing, _MARGIN, foot, name=name)
    else:
        most = words.fixed(np.abs(np.where(masked, 0, values)).max())
        drawing.text(f"blue: below 0, orange: above, up to {most} (square root)", _MARGIN, foot,
                     quiet=True, size=11)  # fmt: skip
    return foot + 12


def _coloured(drawing: Drawing, values: Any, kind: str) -> tuple[Any, list[str]]:
    if kind in ("weights", "chances"):
        return np.rint(np.sqrt(values.clip(0, 1)) * _STEPS).astype(int), _AMOUNTS
    largest = np.abs(values).max() or 1.0
    share = np.sign(values) * np.sqrt(np.abs(values) / largest)
    scale = [blend(_signed(drawing), at / _STEPS) for at in range(_STEPS + 1)]
    return np.rint((share + 1) / 2 * _STEPS).astype(int), scale


def _signed(drawing: Drawing) -> Any:
    if drawing.theme == DARK:
        return ("#8cc8ff", "#2f7fc1", "#22262d", "#c8661a", "#ffbe85")
    return SIGNED


def _answer(drawing: Drawing, walk: Any, run: Any, ids: list[int], top: float) -> float:
    """The most probable next letters after the one that is looked at."""
    x, theme = _MARGIN + _LEFT + 24, drawing.theme
    letter = words.placed(walk.network, ids, walk.place)
    drawing.text(f"What comes after {letter}?", x, top, bold=True)
    row = run["chances"][walk.place]
    order = row.argsort(descending=True, stable=True)[:_ANSWERS].tolist()
    room = _WIDE - _MARGIN - x - 90
    for at, token in enumerate(order):
        y = top + 24 + 20 * at
        drawing.text(walk.network.shown[token][:4], x + 24, y, anchor="end", bold=at == 0)
        drawing.box(x + 32, y - 7, max(1.0, room * float(row[token])), 14, SERIES[0])
        drawing.text(words.percent(row[token]), _WIDE - _MARGIN, y, anchor="end", colour=theme.ink)
    return top + 24 + 20 * len(order)


def _heads(drawing: Drawing, walk: Any, run: Any, top: float) -> float:
    """The maps of the first heads, at most six."""
    x, n = _MARGIN + _LEFT + 24, len(walk.tokens())
    masked = np.triu(np.ones((n, n), bool), 1)
    pairs = [(at, h) for at, heads in enumerate(walk.network.heads) for h in range(heads)][:6]
    drawing.text("The heads", x, top, bold=True)
    for at, (layer, head) in enumerate(pairs):
        left, y = x + at % 3 * (_SIDE + 4), top + 14 + at // 3 * (_SIDE + 24)
        mute = [layer, head] in walk.silent
        levels, palette = _coloured(drawing, run[f"{layer}.weight"][head].numpy(), "weights")
        paper = drawing.theme.paper
        palette = [blend((paper, colour), 0.25) for colour in palette] if mute else palette
        drawing.map(levels, palette, left, y, _SIDE - 8, _SIDE - 8)
        drawing.hatch(masked, left, y, _SIDE - 8, _SIDE - 8)
        name = f"{layer}.{head}{' silent' if mute else ''}"
        drawing.text(name, left, y + _SIDE + 2, size=11, quiet=mute)
    return top + 14 + -(-len(pairs) // 3) * (_SIDE + 24)
