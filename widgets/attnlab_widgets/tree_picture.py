"""The still picture of a tree and of what its phrases gather, for pages without widgets."""

from collections.abc import Sequence
from html import escape

import numpy as np

from attnlab.figures import svg
from attnlab.figures.theme import HATCHING, THEMES
from attnlab_widgets.tree_tables import Numbered

_WIDE, _LEFT, _RIGHT, _TOP = 760, 116, 84, 44
_LEVEL, _ROW, _BOX = 46, 26, 30
_LONGEST = 12


def still(
    tree: Numbered,
    leaf_values: Sequence[float],
    node_values: Sequence[float],
    weights: Sequence[float],
    description: str,
) -> str:
    """The tree above the table of averages Ŝ, whose columns are its leaves, and the sums N̄."""
    n, m = len(tree.leaves), len(tree.nodes)
    column = min(96.0, (_WIDE - _LEFT - _RIGHT) / n)
    names = [_short(name, column) for name in tree.names()]
    places = _places(tree, column)
    low = max(y for _, y in places) + _BOX
    numbers = [*leaf_values, *node_values]
    title = "Each phrase gathers the values of its words"
    body = [svg.text(title, 8, 22, size=15, fill=_LOOK.ink, anchor="start", bold=True)]
    body += _edges(tree, places)
    for (x, y), name, value in zip(places, names, numbers, strict=True):
        body.append(_boxed(x, y, name, _number(value), column))
    top = low + 34
    body.append(_said("Ŝ: mean of a word and the phrases above it", 8, top - 14, anchor="start"))
    averages = tree.averages(leaf_values, node_values)
    gathered = tree.gathered(leaf_values, node_values, weights)
    end = _LEFT + n * column
    body.append(_said("N̄", end + 42, top - 14))
    for i in range(m):
        y = top + i * _ROW
        body.append(_said(names[n + i], _LEFT - 8, y + 17, anchor="end", ink=True))
        body.append(_said(_number(gathered[i]), end + 42, y + 17, ink=True))
        for j in range(n):
            inside = bool(tree.branch(i, j))
            x = _LEFT + j * column
            body += _cell(x, y, column, _number(averages[i, j]) if inside else None)
    high = top + m * _ROW + 34
    shown = ", ".join(f"{value:g}" for value in weights)
    body.append(_said(f"weights of the words: {shown}", 8, high - 12, anchor="start"))
    return svg.document(body, _WIDE, high, description=description, paper=_LOOK.paper)


_LOOK = THEMES["light"]


def _places(tree: Numbered, column: float) -> list[tuple[float, float]]:
    """The middle of the upper side of each box, leaves and then nodes."""
    n, m = len(tree.leaves), len(tree.nodes)
    deepest = max(len(tree.above(j)) for j in range(n))
    level = min(_LEVEL, max(34, 320 / deepest))
    x = [_LEFT + (j + 0.5) * column for j in range(n)] + [0.0] * m
    for i in reversed(range(m)):
        below = [x[k] for k in range(n + m) if tree.parents[k] == i]
        x[n + i] = (min(below) + max(below)) / 2
    depths = [deepest] * n + [len(tree.above(n + i)) for i in range(m)]
    return [(a, _TOP + level * depth) for a, depth in zip(x, depths, strict=True)]


def _edges(tree: Numbered, places: Sequence[tuple[float, float]]) -> list[str]:
    found = []
    n = len(tree.leaves)
    for k, above in enumerate(tree.parents):
        if above >= 0:
            (x, y), (px, py) = places[k], places[n + above]
            turn = py + _BOX + 7
            path = [(px, py + _BOX), (px, turn), (x, turn), (x, y)]
            found.append(svg.polyline(path, _LOOK.quiet, 1))
    return found


def _boxed(x: float, y: float, name: str, value: str, column: float) -> str:
    wide = min(max(34, 8 * len(name) + 8), max(column - 4, 16))
    return (
        svg.rectangle(x - wide / 2, y, wide, _BOX, fill=_LOOK.panel, outline=_LOOK.quiet)
        + svg.text(escape(name), x, y + 13, size=12, fill=_LOOK.ink, bold=True)
        + (svg.text(value, x, y + 26, size=11, fill=_LOOK.quiet) if column >= 30 else "")
    )


def _cell(x: float, y: float, column: float, value: str | None) -> list[str]:
    """A number in its frame; hatched where there is none."""
    if value is not None:
        frame = svg.rectangle(x, y, column, _ROW, fill=_LOOK.paper, outline=_LOOK.grid)
        size = 12 if column >= 40 else 8
        return [frame, svg.text(value, x + column / 2, y + 17, size=size, fill=_LOOK.ink)]
    found = [svg.rectangle(x, y, column, _ROW, fill=_LOOK.panel, outline=_LOOK.grid)]
    for start in np.arange(-_ROW, column, 8):
        left, right = max(start, 0), min(start + _ROW, column)
        low, high = y + _ROW - (left - start), y + _ROW - (right - start)
        found.append(svg.line(x + left, low, x + right, high, HATCHING["light"][1]))
    return found


def _said(text: str, x: float, y: float, *, anchor: str = "middle", ink: bool = False) -> str:
    fill = _LOOK.ink if ink else _LOOK.quiet
    return svg.text(escape(text), x, y, size=12, fill=fill, anchor=anchor)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")


def _short(name: str, column: float) -> str:
    most = max(2, min(_LONGEST, int(column / 8)))
    return name if len(name) <= most else f"{name[: most - 1]}…"
