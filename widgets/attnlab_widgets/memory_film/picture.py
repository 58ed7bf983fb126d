"""The still picture of MemoryFilm: one moment of the film, as on the page."""

import itertools
import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, SIGNED, THEMES, blend
from attnlab.lens.memories import FAR, LOST, NEAR, SEGMENT, Carried
from attnlab_widgets.legend import draw_untrained
from attnlab_widgets.memory_film.words import percent, short

_WIDE, _MARGIN, _LEVELS = 952, 24, 100
_LEFT, _TOP = 76, 70
_ACROSS = _WIDE - _LEFT - _MARGIN
COLOURS = {SEGMENT: SERIES[0], NEAR: SERIES[1], FAR: SERIES[2]}
"""Of the zones, as on the page."""


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    found = widget.recorded
    carried = isinstance(found, Carried)
    drawing = Drawing(_WIDE, 474 if carried else 510, THEMES[widget.theme])
    for at, line in enumerate(textwrap.wrap(widget.description(), 122)):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    if widget.untrained:
        draw_untrained(drawing, _MARGIN, 62)
    if carried:
        _state(drawing, widget, found)
    else:
        _columns(drawing, widget, found)
        _shares(drawing, widget, found)
    return drawing


def _columns(drawing: Drawing, widget: Any, found: Any) -> None:
    """The zones, the weights of the chosen token, and those of its segment."""
    n, query, c = len(widget.tokens), widget.query, found.segment
    zones = found.zones[query // c].numpy()
    cell = _ACROSS / n
    theme, top = drawing.theme, _TOP + 18
    names = {SEGMENT: "segment", NEAR: found.near, FAR: found.far, LOST: "lost"}
    for zone, first, last in runs(zones):
        x, wide = _LEFT + first * cell, (last - first) * cell
        if zone == LOST:
            drawing.hatch(np.ones((1, 1), bool), x, top, wide, 152)
        elif zone in COLOURS:
            drawing.box(x, top - 6, wide, 5, COLOURS[zone])
        if zone in names and wide > 7 * len(names[zone]):
            drawing.text(names[zone], x + wide / 2, top - 16, anchor="middle", quiet=True, size=11)
    weights = widget.weights().numpy()
    largest = max(float(weights.max()), 1e-9)
    for j in np.flatnonzero(weights > 0):
        covers = found.covers if zones[j] == FAR else 1
        high = 150 * weights[j] / largest
        colour = COLOURS.get(int(zones[j]), SERIES[4])
        drawing.box(_LEFT + j * cell, top + 150 - high, max(1, covers * cell - 1), high, colour)
    drawing.text(f"{largest:.2f}", _LEFT - 8, top, anchor="end", quiet=True, size=11)
    drawing.text("0", _LEFT - 8, top + 150, anchor="end", quiet=True, size=11)
    drawing.line([(_LEFT, top + 150), (_LEFT + _ACROSS, top + 150)], theme.grid)
    rows = np.arange(query // c * c, min(n, (query // c + 1) * c))
    maps = found.weights.mean(0) if widget.head is None else found.weights[widget.head]
    at = np.arange(n)
    column = np.where(zones == FAR, at - at % c % found.covers, at)  # a vector stands at its first
    seen = maps.numpy()[rows][:, column]
    level = np.rint(np.sqrt(seen.clip(0, 1)) * (_LEVELS - 1)).astype(int)
    palette = [blend(CIVIDIS, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    drawing.map(level, palette, _LEFT, top + 166, _ACROSS, 110)
    drawing.hatch((at > rows[:, None]) | (zones == LOST), _LEFT, top + 166, _ACROSS, 110)
    high = 110 / len(rows)
    drawing.frame(_LEFT, top + 166 + (query % c) * high, (query + 1) * cell, high, theme.ink, 1.5)
    drawing.text("queries", _LEFT - 8, top + 221, anchor="end", quiet=True, size=11)


def runs(zones: Any) -> list[tuple[int, int, int]]:
    """Neighbouring positions of one zone: (zone, first, behind the last)."""
    edges = [0, *(np.flatnonzero(np.diff(zones)) + 1).tolist(), len(zones)]
    return [(int(zones[a]), a, b) for a, b in itertools.pairwise(edges)]


def _shares(drawing: Drawing, widget: Any, found: Any) -> None:
    """What every token gives to each zone, one above the other."""
    shares = widget.shares().numpy()
    n, top, high = len(shares), 396, 84
    cell = _ACROSS / n
    for i, (own, near, far) in enumerate(shares):
        low = top + high
        for zone, share in ((SEGMENT, own), (NEAR, near), (FAR, far)):
            drawing.box(_LEFT + i * cell, low - high * share, cell, high * share, COLOURS[zone])
            low -= high * share
    for share in (0, 1):
        y = top + high * (1 - share)
        drawing.text(percent(share), _LEFT - 8, y, anchor="end", quiet=True, size=11)
    x = _LEFT + (widget.query + 0.5) * cell
    drawing.line([(x, top - 4), (x, top + high + 4)], drawing.theme.ink, 1.5)
    drawing.text("share of each, token by token", _LEFT, top + high + 14, quiet=True, size=11)


def _state(drawing: Drawing, widget: Any, found: Carried) -> None:
    """Channels by tokens, up to the chosen one; beside them how long each holds."""
    states = found.states[widget.vector].numpy()
    n, dim = states.shape
    holds = widget.holds().numpy()
    order = channels(holds, found.half_life is not None, widget.order)
    wide, high = _ACROSS - 150, 350
    largest = max(float(np.abs(states).max()), 1e-9)
    share = np.sign(states) * np.sqrt(np.abs(states) / largest)
    level = np.rint((share + 1) / 2 * (_LEVELS - 1)).astype(int).T[order]
    palette = [blend(SIGNED, at / (_LEVELS - 1)) for at in range(_LEVELS)]
    drawing.map(level, palette, _LEFT, _TOP, wide, high)
    drawing.frame(_LEFT, _TOP, wide, high, drawing.theme.grid)
    x = _LEFT + (widget.query + 1) * wide / n
    drawing.line([(x, _TOP - 4), (x, _TOP + high + 4)], drawing.theme.ink, 1.5)
    drawing.text("channels", _LEFT - 8, _TOP + high / 2, anchor="end", quiet=True, size=11)
    drawing.text(
        f"tokens 0 to {n - 1}; blue below 0, orange above, at most {short(largest)}: {found.what}",
        _LEFT, _TOP + high + 16, quiet=True, size=11,
    )  # fmt: skip
    title = "half-life, tokens" if found.half_life is not None else "change of state"
    drawing.text(f"{title} (log)", _LEFT + wide + 12, _TOP - 10, quiet=True, size=11)
    logs = np.log10(np.clip(holds[order], 0.01, None))
    reach = max(float(logs.max()) + 2, 1e-9)
    for row, value in enumerate(logs):
        y, long = _TOP + row * high / dim, 130 * (value + 2) / reach
        drawing.box(_LEFT + wide + 12, y, long, max(0.5, high / dim - 1), SERIES[0])


def channels(holds: Any, half_lives: bool, order: str) -> list[int]:
    """The channels in the order of the rows; first those that hold longest, if so wanted."""
    numbers = range(len(holds))
    if order == "number":
        return list(numbers)
    return sorted(numbers, key=lambda channel: -holds[channel] if half_lives else holds[channel])
