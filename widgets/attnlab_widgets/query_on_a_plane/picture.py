"""The still picture of QueryOnAPlane: arrows, weights as bars, values and their mean."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing, hatching
from attnlab.figures.theme import SERIES, THEMES
from attnlab_widgets.words import two

Point = Sequence[float]
_WIDE, _MARGIN, _TOP, _SIDE = 920, 24, 62, 340
_RIGHT = _MARGIN + _SIDE + 40
_QUERY, _KEY, _VALUE, _OUTPUT = SERIES[:4]
_LONGEST = 116  # characters in a line of bold text


class Square:
    """A square of the plane around the origin, at least ``least`` to each side."""

    def __init__(
        self, drawing: Drawing, corner: Point, side: float, points: Sequence[Point],
        least: float = 3.0,
    ) -> None:  # fmt: skip
        self.drawing, self.theme, self.side = drawing, drawing.theme, side
        self.corner = corner
        self.half = max(least, 1.1 * max(abs(x) for point in points for x in point))

    def axes(self) -> None:
        """Both, and a frame."""
        (x, y), side, grid = self.corner, self.side, self.theme.grid
        self.drawing.frame(x, y, side, side, grid)
        self.drawing.line([(x, y + side / 2), (x + side, y + side / 2)], grid)
        self.drawing.line([(x + side / 2, y), (x + side / 2, y + side)], grid)

    def at(self, point: Point) -> tuple[float, float]:
        share = self.side / 2 / self.half
        middle = self.side / 2
        return (
            self.corner[0] + middle + share * point[0],
            self.corner[1] + middle - share * point[1],
        )

    def label(self, text: str, point: Point, away: float, lower: float = 0, **look: Any) -> None:
        """Beside a point, on the side away from the origin; above it where there is no room."""
        x, y = self.at(point)
        right = point[0] >= 0
        room = self.corner[0] + self.side - x if right else x - self.corner[0]
        if room < 7.5 * len(text) + away:
            x, y, anchor = x, y - away - 8, "middle"
        else:
            x, anchor = x + (away if right else -away), "start" if right else "end"
        self.drawing.text(text, x, y + lower, anchor=anchor, **look)

    def marker(self, corners: Sequence[Point], point: Point, size: float, colour: str) -> None:
        x, y = self.at(point)
        self.drawing.patch([(x + size * a, y + size * b) for a, b in corners], colour)


DIAMOND = ((0, -1), (1, 0), (0, 1), (-1, 0))
_BOX = ((-1, -1), (1, -1), (1, 1), (-1, 1))


def picture(plane: Any) -> Drawing:
    """What the widget shows in its present state."""
    theme = THEMES[plane.theme]
    rows = len(plane.names)
    below = 64 + 22 * rows
    values = max(64 + 18 * rows, min(200, _SIDE - below))
    drawing = Drawing(_WIDE, _TOP + max(_SIDE, below + values) + 8, theme)
    for at, line in enumerate(_lines(plane.description())):
        drawing.text(line, _MARGIN, 22 + 18 * at, bold=True, size=13)
    weights = plane.weights().tolist()
    _arrows(drawing, plane, weights)
    _bars(drawing, plane, weights)
    _mean(drawing, plane, weights, _TOP + below, values)
    return drawing


def _lines(text: str) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= _LONGEST:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _arrows(drawing: Drawing, plane: Any, weights: Sequence[float]) -> None:
    points = [*plane.key_vectors, plane.query]
    square = Square(drawing, (_MARGIN, _TOP), _SIDE, points)
    square.axes()
    ground, stroke = hatching(drawing.theme)
    _score_lines(square, plane)
    for j, (name, key) in enumerate(zip(plane.names, plane.key_vectors, strict=True)):
        masked = j in plane.masked
        colour = stroke if masked else _KEY
        drawing.line([square.at((0, 0)), square.at(key)], colour, 1.5, "4 4" if masked else "")
        size = 8 if masked else 7 + 6 * math.sqrt(weights[j])
        square.marker(DIAMOND, key, size, colour)
        if masked:
            square.marker(DIAMOND, key, size - 1.2, ground)
            for c in (-0.5, 0, 0.5):
                x, y = square.at(key)
                ends = [((c + 1) / 2, (c - 1) / 2), ((c - 1) / 2, (c + 1) / 2)]
                drawing.line([(x + size * a, y + size * b) for a, b in ends], stroke)
        twins = sum(math.dist(key, other) < 0.1 for other in plane.key_vectors[:j])
        share = "masked" if masked else two(weights[j])
        square.label(f"{name} {share}", key, size + 5, lower=16 * twins)
    drawing.line([square.at((0, 0)), square.at(plane.query)], _QUERY, 3.5)
    drawing.disc(*square.at(plane.query), 7, _QUERY)
    square.label("query", plane.query, 12, lower=12, bold=True)


def _score_lines(square: Square, plane: Any) -> None:
    """Lines on which every key has the same score, each a whole multiple of a round step."""
    q, half = np.array(plane.query), square.half
    span = plane.scale * half * np.abs(q).sum()
    if span < 1e-9:
        return
    power = 10 ** math.floor(math.log10(span / 5))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= span / 5 * 0.999)
    for at in range(math.ceil(-span / step), math.floor(span / step) + 1):
        ends = _across(q, at * step / plane.scale, half)
        if len(ends) < 2:
            continue
        square.drawing.line([square.at(end) for end in ends[:2]], square.theme.grid)
        end = max(ends[:2], key=lambda point: point[1] - point[0])
        inside = (0.93 * end[0], 0.93 * end[1])
        x, y = square.at(inside)
        name = two(at * step).removesuffix(".00")
        square.drawing.text(f"s = {name}" if at == 0 else name, x, y, anchor="middle", quiet=True)


def _across(q: Any, product: float, half: float) -> list[tuple[float, float]]:
    """Where the line {x: q · x = product} leaves the square."""
    a, b = q.tolist()
    found = [(side, (product - a * side) / b) for side in (-half, half) if b]
    found += [((product - b * side) / a, side) for side in (-half, half) if a]
    return [point for point in found if max(map(abs, point)) <= half * (1 + 1e-9)]


def _bars(drawing: Drawing, plane: Any, weights: Sequence[float]) -> None:
    theme, full = drawing.theme, 200
    columns = {"q·k": 130, f"× {two(plane.scale)} = s": 230}
    top = _TOP + 8
    drawing.text("From scores to weights", _RIGHT, top, bold=True, size=14)
    for title, x in columns.items():
        drawing.text(title, _RIGHT + x, top + 24, anchor="end", quiet=True)
    drawing.text("softmax", _RIGHT + 252, top + 24, quiet=True)
    scores = plane.scores().tolist()
    for j, name in enumerate(plane.names):
        y, masked = top + 46 + 22 * j, j in plane.masked
        drawing.text(f"◆ {name}", _RIGHT, y, bold=True, colour=theme.quiet if masked else _KEY)
        said = two(scores[j] / plane.scale), "masked" if masked else two(scores[j])
        for text, x in zip(said, columns.values(), strict=True):
            drawing.text(text, _RIGHT + x, y, anchor="end")
        left = _RIGHT + 252
        drawing.box(left, y - 7, full, 14, theme.panel)
        if masked:
            drawing.hatch(np.ones((1, 1), bool), left, y - 7, full, 14)
        elif weights[j] > 0:
            drawing.box(left, y - 7, full * weights[j], 14, _KEY)
        drawing.text(two(weights[j]), left + full + 10, y, bold=True)


def _mean(drawing: Drawing, plane: Any, weights: Sequence[float], top: float, side: float) -> None:
    output = plane.output().tolist()
    square = Square(drawing, (_RIGHT, top), side, plane.value_vectors)
    square.axes()
    for j, (name, value) in enumerate(zip(plane.names, plane.value_vectors, strict=True)):
        masked = j in plane.masked
        colour = hatching(drawing.theme)[1] if masked else _VALUE
        if not masked:
            ends = [square.at(output), square.at(value)]
            drawing.line(ends, _VALUE, max(0.75, 5 * weights[j]))
        square.marker(_BOX, value, 4 + 3 * math.sqrt(weights[j]), colour)
        square.label(name, value, 13, bold=True)
    x, y = square.at(output)
    drawing.disc(x, y, 9, drawing.theme.paper)
    for ends in ([(x - 8, y), (x + 8, y)], [(x, y - 8), (x, y + 8)]):
        drawing.line(ends, _OUTPUT, 4)
    left = _RIGHT + side + 24
    drawing.text("✚ Output: mean of the ■ values", left, top + 8, bold=True, size=14)
    seen = [j for j in range(len(weights)) if j not in plane.masked]
    for row, j in enumerate(seen):
        x, y = plane.value_vectors[j]
        text = f"{'+ ' if row else ''}{two(weights[j])} · {plane.names[j]}"
        drawing.text(text, left + 110, top + 32 + 18 * row, anchor="end")
        drawing.text(f"({two(x)}, {two(y)})", left + 220, top + 32 + 18 * row, anchor="end")
    mean = f"({two(output[0])}, {two(output[1])})"
    end = top + 36 + 18 * len(seen)
    drawing.text("= ✚", left + 110, end, anchor="end", bold=True)
    drawing.text(mean, left + 220, end, anchor="end", bold=True)
