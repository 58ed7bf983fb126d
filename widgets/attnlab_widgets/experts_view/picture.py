"""The still picture of ExpertsView: the text by experts, and below it a bar for each expert."""

import textwrap
from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import DARK, THEMES, blend
from attnlab.lens.experts import NONE
from attnlab_widgets.picture_image import indexed, shaded
from attnlab_widgets.query_key_space.colours import FEW
from attnlab_widgets.words import two

_WIDE, _MARGIN, _LEFT, _SIDE, _SAID = 952, 24, 104, 170, 96
_CHIP, _LINES, _MOST_ROWS = 22, 9, 16
_TINT = 0.32  # how much of an expert's colour is mixed with the paper behind a token


def colour(expert: int, theme: Any) -> str:
    """The colour of an expert, as on the page; there are ten, and the numbers tell more apart."""
    few = FEW["dark" if theme == DARK else "light"]
    return few[expert % len(few)]


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state, without the training."""
    said = textwrap.wrap(widget.description(), 122)
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 20 + 18 * len(said) + 6
    image = widget._experts["image"]
    below = _patches(drawing, widget, image, top) if image else _text(drawing, widget, top)
    drawing.high = round(_bars(drawing, widget, below + 26))
    return drawing


def _text(drawing: Drawing, widget: Any, top: float) -> float:
    """The tokens as chips in lines; gives where they end."""
    x, y = float(_MARGIN), top
    for i, token in enumerate(widget.tokens):
        wide = 7.2 * len(token) + 20
        if x + wide > _WIDE - _MARGIN:
            x, y = float(_MARGIN), y + _CHIP + 4
            if y > top + _LINES * (_CHIP + 4):
                drawing.text(f"… and {len(widget.tokens) - i} more", x, y, quiet=True)
                return y + 14
        _chip(drawing, widget, i, (x, y, wide - 3, _CHIP))
        drawing.text(token, x + 5, y + _CHIP / 2, size=12, bold=i == widget.token)
        chosen = widget.routed.chosen[i]
        strongest = int(chosen[widget.routed.gates[i].masked_fill(chosen == NONE, -1).argmax()])
        number = "–" if strongest == NONE else str(strongest)
        drawing.text(number, x + wide - 6, y + _CHIP / 2 + 4, anchor="end", quiet=True, size=9)
        x += wide
    return y + _CHIP


def _chip(drawing: Drawing, widget: Any, i: int, box: tuple[float, ...]) -> None:
    """A token's ground: a part for each choice, hatched where it is dropped."""
    x, y, w, h = box
    taken, chosen = widget.taken()[i].tolist(), widget.routed.chosen[i].tolist()
    made = [c for c, expert in enumerate(chosen) if expert != NONE]
    if not made:
        drawing.hatch(np.ones((1, 1), bool), x, y, w, h)
    gates = [max(float(widget.routed.gates[i, c]), 1e-3) for c in made]
    for at, c in enumerate(made):
        left = x + w * sum(gates[:at]) / sum(gates)
        wide = w * gates[at] / sum(gates)
        own = colour(chosen[c], drawing.theme)
        if taken[c] == NONE:
            drawing.hatch(np.ones((1, 1), bool), left, y, wide, h)
        else:
            drawing.box(left, y, wide, h, blend((drawing.theme.paper, own), _TINT))
        drawing.box(left, y + h - 3, wide, 3, own)
    if i == widget.token:
        drawing.frame(x - 1, y - 1, w + 2, h + 2, drawing.theme.ink, 2)


def _patches(drawing: Drawing, widget: Any, image: Any, top: float) -> float:
    """The image with the colour of each patch's first expert over it."""
    grid = image["grid"]
    rows, columns = grid["rows"], grid["columns"]
    high = min(230.0, (_WIDE - 2 * _MARGIN) / 2 * image["height"] / image["width"])
    wide = high * image["width"] / image["height"]
    pixels = shaded(image["url"], grid, np.ones(len(widget.tokens)))
    drawing.map(*indexed(pixels), _MARGIN, top, wide, high)
    for i in range(grid["first"], len(widget.tokens)):
        row, column = divmod(i - grid["first"], columns)
        side = wide / columns, high / rows
        place = (_MARGIN + column * side[0], top + row * side[1])
        x = _MARGIN + wide + 24 + column * side[0]
        _chip(drawing, widget, i, (x, place[1], side[0] - 1, side[1] - 1))
    return top + high


def _bars(drawing: Drawing, widget: Any, top: float) -> float:
    """A row for each expert: what it was asked for, in the order of placing; the capacity."""
    layer, theme = widget.routed, drawing.theme
    queue: dict[int, list[int]] = {expert: [] for expert in range(layer.experts)}
    for i, c in layer.queue()[: widget.placed]:
        queue[int(layer.chosen[i, c])].append(i)
    wanted = layer.wanted()
    rows = sorted(range(layer.experts), key=lambda e: -int(wanted[e]))[:_MOST_ROWS]
    rows.sort()
    most = max(int(wanted.max()), 1)
    capacity = widget.capacity
    shown = max(most, capacity if capacity <= 1.5 * most else 0)
    across = _WIDE - _LEFT - _MARGIN - (_SIDE if layer.router is not None else 0) - _SAID
    cell = min(26.0, across / shown)
    deep = 20
    for at, expert in enumerate(rows):
        y, own = top + at * deep, colour(expert, theme)
        drawing.box(_MARGIN, y + 3, 10, deep - 8, own)
        drawing.text(f"expert {expert}", _MARGIN + 16, y + deep / 2 - 1, size=11)
        for place, i in enumerate(queue[expert]):
            x = _LEFT + place * cell
            if place < capacity:
                drawing.box(x, y + 1, max(cell - 1, 0.5), deep - 4, own)
            else:
                drawing.hatch(np.ones((1, 1), bool), x, y + 1, max(cell - 1, 0.5), deep - 4)
            if i == widget.token:
                drawing.frame(x, y + 1, max(cell - 1, 3), deep - 4, theme.ink, 2)
        load = min(len(queue[expert]), capacity)
        lost = len(queue[expert]) - load
        said = f"{load}" + (f", {lost} dropped" if lost else "")
        x, line = _LEFT + len(queue[expert]) * cell, _LEFT + capacity * cell
        x = (line if x <= line < x + 30 else x) + 6  # not across the line
        drawing.text(said, x, y + deep / 2 - 1, size=10, quiet=True)
        if layer.router is not None:
            _probability(drawing, float(layer.router[widget.token, expert]), y, deep, own)
    low = top + len(rows) * deep
    if capacity <= shown:
        x = _LEFT + capacity * cell - 0.5
        drawing.line([(x, top - 6), (x, low + 2)], theme.ink, 1.5)
        drawing.text(f"room for {capacity}", x, top - 13, anchor="middle", size=11)
    if layer.router is not None:
        x = _WIDE - _MARGIN - _SIDE + 10
        drawing.text(f"router, token {widget.token}", x, top - 13, quiet=True, size=11)
    left_out = layer.experts - len(rows)
    more = f"; {left_out} experts with fewer tokens are left out" if left_out else ""
    drawing.text(
        f"a square is a token, in the order of placing; hatched: dropped{more}", _LEFT, low + 12,
        quiet=True, size=11,
    )  # fmt: skip
    return low + 26


def _probability(drawing: Drawing, p: float, y: float, deep: float, own: str) -> None:
    x = _WIDE - _MARGIN - _SIDE + 10
    drawing.box(x, y + 3, max(120 * p, 1), deep - 8, own)
    drawing.text(two(p), x + 120 * p + 5, y + deep / 2 - 1, size=10, quiet=True)
