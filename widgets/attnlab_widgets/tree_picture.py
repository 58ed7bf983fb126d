"""The still picture of a tree, its averages or its attention, for pages without widgets."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from attnlab.figures import svg
from attnlab.figures.theme import CIVIDIS, HATCHING, SERIES, THEMES, blend, contrast
from attnlab_widgets.tree_tables import Numbered

_WIDE, _LEFT, _RIGHT, _TOP = 760, 116, 84, 44
_LEVEL, _BOX = 46, 30
_LONGEST = 12
_LOOK = THEMES["light"]
Place = tuple[float, float]


def still_tables(
    tree: Numbered,
    leaf_values: Sequence[float],
    node_values: Sequence[float],
    weights: Sequence[float],
    description: str,
) -> str:
    """The tree above the table of averages Ŝ, whose columns are its leaves, and the sums N̄."""
    n, m = len(tree.leaves), len(tree.nodes)
    numbers = [_number(value) for value in (*leaf_values, *node_values)]
    body, top, names = _tree(tree, "Each phrase gathers the values of its words", numbers)
    body.append(_said("Ŝ: mean of a word and the phrases on its branch", 8, top - 14, "start"))
    averages = tree.averages(leaf_values, node_values)
    gathered = tree.gathered(leaf_values, node_values, weights)
    column = _column(tree)
    row = 26 if m <= 10 else 18
    end = _LEFT + n * column
    body.append(_said("N̄", end + 42, top - 14))
    for i in range(m):
        y = top + i * row
        middle = y + row / 2 + 4
        body.append(_said(names[n + i], _LEFT - 8, middle, "end", ink=True))
        body.append(_said(_number(gathered[i]), end + 42, middle, ink=True))
        for j in range(n):
            x = _LEFT + j * column
            if tree.branch(i, j):
                body.append(svg.rectangle(x, y, column, row, fill=_LOOK.paper, outline=_LOOK.grid))
                size = 12 if column >= 44 else 8
                value = _number(averages[i, j])
                body.append(svg.text(value, x + column / 2, middle, size=size, fill=_LOOK.ink))
            else:
                body += _hatched(x, y, column, row)
    high = top + m * row + 34
    shown = ", ".join(_number(value) for value in weights)
    body.append(_said(f"weights w of the words: {shown}", 8, high - 12, "start"))
    return svg.document(body, _WIDE, high, description=description, paper=_LOOK.paper)


def still_map(tree: Numbered, weights: Any, query: int, title: str, description: str) -> str:
    """The tree above the map of queries (rows) and keys; NaN where a query may not attend.

    The nodes of the tree are in the colours of the row of ``query``. Boolean ``weights`` are a
    mask.
    """
    count = len(tree.parents)
    mask = weights.dtype == bool
    cells = np.where(weights, 1.0, np.nan) if mask else np.asarray(weights, float)

    def fill(weight: float) -> str:
        return SERIES[0] if mask else blend(CIVIDIS, float(np.sqrt(weight)))

    row = cells[query]
    numbers = ["" if np.isnan(w) else "✓" if mask else f"{w:.2f}" for w in row]
    fills = ["" if np.isnan(w) else fill(w) for w in row]
    body, top, names = _tree(tree, title, numbers, fills, query)
    side = min(24.0, 420 / count)
    top += 46 if side >= 12 else 0
    for k, name in enumerate(names):
        at: float = (k + 0.65) * side
        if side >= 12:
            place = _LEFT + at
            text = escape(name)
            body.append(
                svg.text(text, place, top - 6, size=11, fill=_LOOK.quiet, anchor="start", turn=-90)
            )
        ink = _LOOK.ink if k == query else _LOOK.quiet
        size, bold = min(12.0, side), k == query
        body.append(
            svg.text(
                escape(name), _LEFT - 8, top + at, size=size, fill=ink, anchor="end", bold=bold
            )
        )
        for key, weight in enumerate(cells[k]):
            x, y = _LEFT + key * side, top + k * side
            if np.isnan(weight):
                body += _hatched(x, y, side, side)
            else:
                body.append(svg.rectangle(x, y, side, side, fill=fill(weight), outline=_LOOK.grid))
    beside = _LEFT + count * side + 20
    colours = "blue: may be attended to" if mask else "dark blue: weight 0, yellow: weight 1"
    for line, said in enumerate(("rows: queries, columns: keys", colours, "hatched: masked")):
        body.append(_said(said, beside, top + 16 + 20 * line, "start"))
    high = top + count * side + 16
    return svg.document(body, _WIDE, high, description=description, paper=_LOOK.paper)


def _column(tree: Numbered) -> float:
    return min(96.0, (_WIDE - _LEFT - _RIGHT) / len(tree.leaves))


def _tree(
    tree: Numbered,
    title: str,
    numbers: Sequence[str],
    fills: Sequence[str] | None = None,
    chosen: int | None = None,
) -> tuple[list[str], float, list[str]]:
    """The title and the drawing, where it ends, and the names as they fit into a column.

    Without a fill a box is hatched, unless there are no ``fills`` at all.
    """
    n, column = len(tree.leaves), _column(tree)
    names = [_short(name, 96) for name in tree.names()]
    places = _places(tree, column)
    body = [svg.text(title, 8, 22, size=15, fill=_LOOK.ink, anchor="start", bold=True)]
    body += _edges(tree, places)
    spans = [1] * n + tree.spans().sum(1).tolist()
    for k, (x, y) in enumerate(places):
        room = spans[k] * column - 4
        name = _short(names[k], room + 4)
        wide = min(max(34, 8 * len(name) + 8), room)
        body += _boxed((x, y, wide), name, numbers[k], None if fills is None else fills[k])
        if k == chosen:
            frame = svg.rectangle(x - wide / 2 - 2, y - 2, wide + 4, _BOX + 4,
                                  outline=SERIES[1], outline_width=3)  # fmt: skip
            body.append(frame)
    return body, max(y for _, y in places) + _BOX + 34, names


def _places(tree: Numbered, column: float) -> list[Place]:
    """The middle of the upper side of each box, leaves and then nodes."""
    n, m = len(tree.leaves), len(tree.nodes)
    deepest = max(len(tree.above(j)) for j in range(n))
    level = min(_LEVEL, max(_BOX + 10, 320 / deepest))
    x = [_LEFT + (j + 0.5) * column for j in range(n)] + [0.0] * m
    for i in reversed(range(m)):
        below = [x[k] for k in range(n + m) if tree.parents[k] == i]
        x[n + i] = (min(below) + max(below)) / 2
    depths = [deepest] * n + [len(tree.above(n + i)) for i in range(m)]
    return [(a, _TOP + level * depth) for a, depth in zip(x, depths, strict=True)]


def _edges(tree: Numbered, places: Sequence[Place]) -> list[str]:
    found = []
    n = len(tree.leaves)
    for k, above in enumerate(tree.parents):
        if above >= 0:
            (x, y), (px, py) = places[k], places[n + above]
            turn = py + _BOX + 7
            path = [(px, py + _BOX), (px, turn), (x, turn), (x, y)]
            found.append(svg.polyline(path, _LOOK.quiet, 1))
    return found


def _boxed(box: tuple[float, float, float], name: str, number: str, fill: str | None) -> list[str]:
    x, y, wide = box
    paper = fill or _LOOK.panel
    body = [svg.rectangle(x - wide / 2, y, wide, _BOX, fill=paper, outline=_LOOK.quiet)]
    if fill == "":
        body += _hatched(x - wide / 2, y, wide, _BOX)
    ink = _LOOK.ink if not fill or contrast(fill, _LOOK.ink) > 4.5 else "#ffffff"
    size = 12 if wide >= 30 else 9
    body.append(svg.text(escape(name), x, y + 13, size=size, fill=ink, bold=True))
    if wide >= 26:
        body.append(svg.text(number, x, y + 26, size=size - 1, fill=ink))
    return body


def _hatched(x: float, y: float, wide: float, high: float) -> list[str]:
    found = [svg.rectangle(x, y, wide, high, fill=_LOOK.panel, outline=_LOOK.grid)]
    for start in np.arange(7 - high, wide, 8):
        left, right = max(start, 0), min(start + high, wide)
        low, up = y + high - (left - start), y + high - (right - start)
        found.append(svg.line(x + left, low, x + right, up, HATCHING["light"][1]))
    return found


def _said(text: str, x: float, y: float, anchor: str = "middle", *, ink: bool = False) -> str:
    fill = _LOOK.ink if ink else _LOOK.quiet
    return svg.text(escape(text), x, y, size=12, fill=fill, anchor=anchor)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")


def _short(name: str, column: float) -> str:
    most = max(2, min(_LONGEST, int(column / 8)))
    return name if len(name) <= most else f"{name[: most - 1]}…"
