"""The still picture of a tree, its averages or its attention, drawn in Python alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, Theme, blend, contrast
from attnlab.lens.tree_tables import Numbered

_WIDE, _LEFT, _RIGHT, _TOP = 760, 116, 84, 44
_LEVEL, _BOX = 46, 30
_LONGEST = 12
Place = tuple[float, float]


def still_tables(
    tree: Numbered,
    leaf_values: Sequence[float],
    node_values: Sequence[float],
    weights: Sequence[float],
    look: Theme,
) -> Drawing:
    """The tree above the table of averages Ŝ, whose columns are its leaves, and the sums v̄."""
    n, m = len(tree.leaves), len(tree.nodes)
    numbers = [_number(value) for value in (*leaf_values, *node_values)]
    drawing = Drawing(_WIDE, 0, look)
    top, names = _tree(drawing, tree, "Each phrase gathers the values of its words", numbers)
    _said(drawing, "Ŝ: mean of a word and the phrases on its branch", 24, top - 18, "start")
    averages = tree.averages(leaf_values, node_values)
    gathered = tree.gathered(leaf_values, node_values, weights)
    column = _column(tree)
    row = 26 if m <= 10 else 18
    end = _LEFT + n * column
    _said(drawing, "v̄", end + 42, top - 18)
    drawing.hatch(~tree.spans(), _LEFT, top, n * column, m * row)
    for i in range(m):
        y = top + i * row
        middle = y + row / 2
        _said(drawing, names[n + i], _LEFT - 8, middle, "end", ink=True)
        _said(drawing, _number(gathered[i]), end + 42, middle, ink=True)
        for j in range(n):
            x = _LEFT + j * column
            if tree.branch(i, j):
                drawing.box(x, y, column, row, look.paper, look.grid)
                size = 12 if column >= 44 else 8
                value = _number(averages[i, j])
                drawing.text(value, x + column / 2, middle, anchor="middle", size=size)
    drawing.frame(_LEFT, top, n * column, m * row, look.grid)
    drawing.high = round(top + m * row + 34)
    shown = ", ".join(_number(value) for value in weights)
    _said(drawing, f"weights w of the words: {shown}", 24, drawing.high - 14, "start")
    return drawing


def still_map(tree: Numbered, weights: Any, query: int, title: str, look: Theme) -> Drawing:
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
    drawing = Drawing(_WIDE, 0, look)
    top, names = _tree(drawing, tree, title, numbers, fills, query)
    side = min(24.0, 420 / count)
    top += 46 if side >= 12 else 0
    drawing.hatch(np.isnan(cells), _LEFT, top, count * side, count * side)
    for k, name in enumerate(names):
        at = (k + 0.5) * side
        if side >= 12:
            drawing.text(name, _LEFT + at, top - 6, size=11, quiet=True, turned=True)
        chosen = {"quiet": k != query, "bold": k == query}
        drawing.text(name, _LEFT - 8, top + at, size=round(min(12, side)), anchor="end", **chosen)
        for key, weight in enumerate(cells[k]):
            if not np.isnan(weight):
                x, y = _LEFT + key * side, top + k * side
                drawing.box(x, y, side, side, fill(weight), look.grid)
    drawing.frame(_LEFT, top, count * side, count * side, look.grid)
    beside = _LEFT + count * side + 20
    colours = "blue: may be attended to" if mask else "dark blue: weight 0, yellow: weight 1"
    for line, said in enumerate(("rows: queries, columns: keys", colours, "hatched: masked")):
        _said(drawing, said, beside, top + 12 + 20 * line, "start")
    drawing.high = round(top + count * side + 16)
    return drawing


def _column(tree: Numbered) -> float:
    return min(96.0, (_WIDE - _LEFT - _RIGHT) / len(tree.leaves))


def _tree(
    drawing: Drawing,
    tree: Numbered,
    title: str,
    numbers: Sequence[str],
    fills: Sequence[str] | None = None,
    chosen: int | None = None,
) -> tuple[float, list[str]]:
    """Draws title and tree; where that ends, and the names as they fit into a column.

    Without a fill a box is hatched, unless there are no ``fills`` at all.
    """
    n, column = len(tree.leaves), _column(tree)
    names = [_short(name, 96) for name in tree.names()]
    places = _places(tree, column)
    drawing.text(title, 24, 20, size=15, bold=True)
    _edges(drawing, tree, places)
    spans = [1] * n + tree.spans().sum(1).tolist()
    for k, (x, y) in enumerate(places):
        room = spans[k] * column - 4
        name = _short(names[k], room + 4)
        wide = min(max(34, 8 * len(name) + 8), room)
        _boxed(drawing, (x, y, wide), name, numbers[k], None if fills is None else fills[k])
        if k == chosen:
            drawing.frame(x - wide / 2 - 2, y - 2, wide + 4, _BOX + 4, SERIES[1], 3)
    return max(y for _, y in places) + _BOX + 34, names


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


def _edges(drawing: Drawing, tree: Numbered, places: Sequence[Place]) -> None:
    n = len(tree.leaves)
    for k, above in enumerate(tree.parents):
        if above >= 0:
            (x, y), (px, py) = places[k], places[n + above]
            turn = py + _BOX + 7
            path = [(px, py + _BOX), (px, turn), (x, turn), (x, y)]
            drawing.line(path, drawing.theme.quiet)


def _boxed(
    drawing: Drawing, box: tuple[float, float, float], name: str, number: str, fill: str | None
) -> None:
    x, y, wide = box
    look = drawing.theme
    paper = fill or look.panel
    drawing.box(x - wide / 2, y, wide, _BOX, paper, look.quiet)
    if fill == "":
        drawing.hatch(np.ones((1, 1)), x - wide / 2 + 1, y + 1, wide - 2, _BOX - 2)
    ink = max((look.ink, "#ffffff"), key=lambda colour: contrast(paper, colour))
    size = 12 if wide >= 30 else 9
    drawing.text(name, x, y + 9, size=size, colour=ink, bold=True, anchor="middle")
    if wide >= 26:
        drawing.text(number, x, y + 22, size=size - 1, colour=ink, anchor="middle")


def _said(
    drawing: Drawing, text: str, x: float, y: float, anchor: str = "middle", *, ink: bool = False
) -> None:
    drawing.text(text, x, y, anchor=anchor, quiet=not ink)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")


def _short(name: str, column: float) -> str:
    most = max(2, min(_LONGEST, int(column / 8)))
    return name if len(name) <= most else f"{name[: most - 1]}…"
