"""The still picture of GraphView: the graph with attention on its edges, and the map beside it."""

import itertools
import math
import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, GROUPS, SERIES, THEMES, Theme, blend
from attnlab_widgets.graph_view.path import marks

_WIDE, _HIGH, _MARGIN, _TOP = 960, 500, 24, 62
_STAGE, _SIDE, _LEVELS, _SHADES, _STRIP = (520, 400), 356, 20, 5, 7
_INSET, _LINE, _FEW, _MANY, _MOST_DRAWN, _MOST_NAMED = 18, 13, 40, 400, 250, 8
CHOSEN, FIELD = SERIES[1], SERIES[0]
"""Whom the chosen node attends to; its receptive field."""


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    theme = THEMES[widget.theme]
    drawing = Drawing(_WIDE, _HIGH, theme)
    lines = textwrap.wrap(widget.description(), 122)
    pitch = min(18, 54 / len(lines))
    for at, line in enumerate(lines):
        drawing.text(line, _MARGIN, 2 + pitch * (at + 1), bold=True, size=13)
    weights = widget.map().numpy()
    places = np.array(widget.positions) * (np.array(_STAGE) - 2 * _INSET) + _INSET
    places += np.array([_MARGIN, _TOP])
    drawing.frame(_MARGIN, _TOP, *_STAGE, theme.grid)
    radius = 7 if len(places) <= _FEW else 4.5 if len(places) <= 120 else 3
    _edges(drawing, widget, weights, places, radius)
    numbers = _path(drawing, widget, weights, places, radius)
    hops = _along(widget, weights, places, radius)
    fills = _fills(widget, theme)
    for (x, y), fill in zip(places.tolist(), fills, strict=True):
        drawing.disc(x, y, radius + 1, theme.paper if fill else theme.quiet)
        drawing.disc(x, y, radius, fill or theme.paper)
    for (x, y), number, bold in numbers:
        drawing.disc(x, y, _badge(number), CHOSEN)
        drawing.disc(x, y, _badge(number) - (2 if bold else 1), theme.paper)
        drawing.text(number, x, y, anchor="middle", size=11, bold=bold)
    badges = [(*at, _badge(text)) for at, text, _ in numbers]
    _labels(drawing, widget, weights, places, radius, badges, hops)
    _map(drawing, widget, weights)
    drawing.text(_explained(widget), _MARGIN, _TOP + _STAGE[1] + 16, quiet=True, size=11)
    return drawing


def group_of(widget: Any) -> list[int]:
    """What colours the nodes: their groups, or their communities."""
    told = widget._graph
    return list(told["groups"]["of"] if told["groups"] else told["communities"])


def _fills(widget: Any, theme: Theme) -> list[str]:
    """The colours of the nodes; empty where a node has not been reached."""
    hops = widget.hops()
    if widget.depth and hops:
        return [
            "" if not 0 <= hop <= widget.depth
            else CHOSEN if hop == 0 else blend((FIELD, theme.paper), min(0.75, 0.25 * (hop - 1)))
            for hop in hops
        ]  # fmt: skip
    fills = [GROUPS[kind] if kind < len(GROUPS) else SERIES[4] for kind in group_of(widget)]
    if widget.node is not None:
        fills[widget.node] = CHOSEN
    return fills


def _edges(
    drawing: Drawing, widget: Any, weights: NDArray[Any], places: NDArray[Any], radius: float
) -> None:
    """Arrows from the node attended to, to the one that attends; the strongest, up to 250, and on
    top those of the chosen node."""
    theme, largest = drawing.theme, max(float(weights.max(initial=0)), 1e-9)
    targets, sources = np.nonzero(weights)
    order = weights[targets, sources].argsort(kind="stable").tolist()
    thin = max(0.25, min(1, math.sqrt(_MANY / max(1, len(targets)))))
    chosen = [at for at in order if targets[at] == widget.node]
    for at in [*(at for at in order[-_MOST_DRAWN:] if targets[at] != widget.node), *chosen]:
        i, j = int(targets[at]), int(sources[at])
        share = math.ceil(_SHADES * math.sqrt(weights[i, j] / largest)) / _SHADES
        width = thin * (0.5 + 3.5 * share)
        colour = blend((theme.paper, theme.ink), 0.15 + 0.5 * share)
        if i == widget.node:
            colour = blend((theme.paper, CHOSEN), 0.45 + 0.55 * share)
        elif widget.node is not None or widget.step:
            colour, width = blend((theme.paper, theme.ink), 0.12), 0.6 * width
        _edge(drawing, (i, j), places, radius, (colour, width), bool(weights[j, i]))


def _edge(
    drawing: Drawing, pair: tuple[int, int], places: NDArray[Any], radius: float,
    look: tuple[str, float], bent: bool,
) -> tuple[float, float]:  # fmt: skip
    """The arrow to the first node of a pair from the second, or a ring above a node for one to
    itself, in a colour and width; its middle."""
    (i, j), (colour, width) = pair, look
    if i == j:
        x, y = places[i].tolist()
        turns = np.linspace(0, 2 * math.pi, 17)
        ring = [(x + 6 * math.cos(t), y - radius - 5 + 6 * math.sin(t)) for t in turns]
        drawing.line(ring, colour, width)
        return x, y - radius - 11
    path, head = arrow(places[j], places[i], radius, width, bent)
    drawing.line(path, colour, width)
    drawing.patch(head, colour)
    (a, b), (c, d) = path[(len(path) - 1) // 2], path[len(path) // 2]
    return float(a + c) / 2, float(b + d) / 2


def _path(
    drawing: Drawing, widget: Any, weights: NDArray[Any], places: NDArray[Any], radius: float
) -> list[tuple[tuple[float, float], str, bool]]:
    """The hops of the path that are shown, the present one the strongest; the places of their
    numbers, and whether one is the present hop."""
    found = []
    for hop, number, now in marks(widget._hops, widget.step):
        look = (CHOSEN, 5.0) if now else (blend((drawing.theme.paper, CHOSEN), 0.6), 3.0)
        bent = bool(weights[hop.source, hop.target])
        middle = _edge(drawing, (hop.target, hop.source), places, radius, look, bent)
        found.append((middle, number, now))
    return found


def _along(
    widget: Any, weights: NDArray[Any], places: NDArray[Any], radius: float
) -> list[tuple[float, float, float]]:
    """Points of the arrows of the hops that are shown, (x, y, radius)."""
    found = []
    for hop, _, _ in marks(widget._hops, widget.step):
        if hop.source == hop.target:
            continue
        bent = bool(weights[hop.source, hop.target])
        ends = places[hop.source], places[hop.target]
        (line, _) = arrow(*ends, radius, 5.0, bent)
        for (x0, y0), (x1, y1) in itertools.pairwise(line):
            found += [(x0 + t * (x1 - x0), y0 + t * (y1 - y0), 3.0) for t in np.linspace(0, 1, 9)]
    return found


def _badge(number: str) -> float:
    """The radius of the disc on which a number stands."""
    return max(8, 4 + 3.3 * len(number))


def arrow(
    start: Any, end: Any, radius: float, width: float, bent: bool
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The line and the head of an arrow between two nodes; bent where another leads back."""
    (x0, y0), (x1, y1) = start, end
    long = max(math.hypot(x1 - x0, y1 - y0), 1e-9)
    bend = min(0.12 * long, 22) if bent else 0
    middle = ((x0 + x1) / 2 + bend * (y0 - y1) / long, (y0 + y1) / 2 + bend * (x1 - x0) / long)
    dx, dy = x1 - middle[0], y1 - middle[1]
    far = max(math.hypot(dx, dy), 1e-9)
    dx, dy = dx / far, dy / far
    size = 3.5 + 1.3 * width
    tip = (x1 - dx * (radius + 1), y1 - dy * (radius + 1))
    base = (tip[0] - size * dx, tip[1] - size * dy)
    path = [
        tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c
              for a, b, c in zip((x0, y0), middle, base, strict=True))
        for t in ((0, 1) if not bent else (0, 0.25, 0.5, 0.75, 1))
    ]  # fmt: skip
    half = size / 2
    head = [
        tip,
        (base[0] - half * dy, base[1] + half * dx),
        (base[0] + half * dy, base[1] - half * dx),
    ]
    return [(x, y) for x, y in path], head


def _labels(
    drawing: Drawing, widget: Any, weights: NDArray[Any], places: NDArray[Any], radius: float,
    numbers: list[tuple[float, float, float]], hops: list[tuple[float, float, float]],
) -> None:  # fmt: skip
    """Names beside their nodes, the most important first, where no other name lies and no number
    of a hop, and, if there is such a place, no arrow of a hop; both are (x, y, radius)."""
    taken, crossed = ([(x - r, y - r, x + r, y + r) for x, y, r in one] for one in (numbers, hops))
    left, right, low = _MARGIN + 2, _MARGIN + _STAGE[0] - 2, _TOP + _STAGE[1]
    for node in importance(widget, weights):
        text, bold = widget.labels[node], node == widget.node
        wide = (7.2 if bold else 6.6) * len(text) + 2
        x, y = places[node]
        beside, up = radius + 3, radius + _LINE / 2 + 1
        middle = max(left, min(x - wide / 2, right - wide))
        back, on = max(left, x + radius - wide), min(x - radius, right - wide)
        free = []
        for start, centre in (
            (x + beside, y), (x - beside - wide, y), (middle, y - up), (middle, y + up),
            *((back, y - up), (back, y + up), (on, y - up), (on, y + up)) * bool(hops),
        ):  # fmt: skip
            box = (start, centre - _LINE / 2, start + wide, centre + _LINE / 2)
            outside = box[0] < left or box[2] > right or box[1] < _TOP or box[3] > low
            if not outside and not any(_meet(box, one) for one in taken):
                free.append(box)
        if free:
            clear = (box for box in free if not any(_meet(box, one) for one in crossed))
            box = next(clear, free[0])
            taken.append(box)
            drawing.text(text, box[0], box[1] + _LINE / 2, size=11, bold=bold)
        if len(places) > _FEW and len(taken) - len(numbers) == _MOST_NAMED:
            break


def importance(widget: Any, weights: NDArray[Any]) -> list[int]:
    """The nodes whose names are wanted: those of the path, the chosen one, those that it attends
    to, then, in small graphs or where none is chosen, those with most neighbours."""
    degree, node = widget._graph["degrees"], widget.node
    every = sorted(range(len(degree)), key=lambda one: (-degree[one], one))
    if node is None:
        return list(dict.fromkeys([*widget.path, *every]))
    seen = [
        *widget.path,
        node,
        *(j for j in (-weights[node]).argsort(kind="stable").tolist() if weights[node, j]),
    ]
    return list(dict.fromkeys(seen + (every if len(every) <= _FEW else [])))


def _meet(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _map(drawing: Drawing, widget: Any, weights: NDArray[Any]) -> None:
    """Rows attend to columns, both in the chosen order; a strip of colours says which group."""
    theme, order, n = drawing.theme, widget.shown_order, len(weights)
    x, y = _WIDE - _MARGIN - _SIDE, _TOP + 22
    shown = weights[np.ix_(order, order)]
    share = np.sqrt(shown / max(float(shown.max(initial=0)), 1e-9))
    level = np.rint(share * (_LEVELS - 1)).astype(int)
    level[shown == 0] = _LEVELS
    palette = [*(blend(CIVIDIS, at / (_LEVELS - 1)) for at in range(_LEVELS)), theme.panel]
    drawing.map(level, palette, x, y, _SIDE, _SIDE)
    kinds = np.minimum(np.array(group_of(widget))[order], len(GROUPS))
    strip = [*GROUPS, SERIES[4]]
    drawing.map(kinds[:, None], strip, x - _STRIP - 3, y, _STRIP, _SIDE)
    drawing.map(kinds[None], strip, x, y - _STRIP - 3, _SIDE, _STRIP)
    drawing.frame(x, y, _SIDE, _SIDE, theme.grid)
    if widget.node is not None:
        row = order.index(widget.node) * _SIDE / n
        drawing.frame(x, y + row, _SIDE, max(2, _SIDE / n), CHOSEN, 1.5)
    by = {"number": "number", "degree": "number of neighbours"}.get(widget.order, widget.order)
    drawing.text(f"Rows attend to columns, ordered by {by}", x, y + _SIDE + 16, quiet=True, size=11)


def _explained(widget: Any) -> str:
    path = " Orange, with numbers: the hops of the path." if widget.step else ""
    if widget.depth and widget.node is not None:
        return f"Blue: reached, the paler the later; hollow: not reached.{path}"
    told = widget._graph["groups"]
    colours = "group" if told else "community"
    return f"An arrow leads to the node that attends. Colours: {colours}.{path}"
