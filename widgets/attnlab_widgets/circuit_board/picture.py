"""The still picture of CircuitBoard: chips and wires, and the answer before and after the cuts."""

import textwrap
from typing import Any

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES
from attnlab_widgets.circuit_board import words
from attnlab_widgets.circuit_board.layout import Board, board_of
from attnlab_widgets.circuit_board.paths import INTO, LOGITS, senders
from attnlab_widgets.legend import draw_untrained
from attnlab_widgets.words import clipped

_WIDE, _MARGIN, _LEFT, _SHOWN = 952, 24, 590, 5
_THIN, _THICK = 1.5, 9.0


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    drawing = Drawing(_WIDE, 10, THEMES[widget.theme])
    said = textwrap.wrap(widget.description(), 122)
    for at, line in enumerate(said):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    top = 32 + 18 * len(said)
    network = widget.network
    shown = "".join(network.shown[token] for token in widget.tokens())
    drawing.text(clipped(shown, 110), _MARGIN, top, size=14)
    if widget.untrained:
        draw_untrained(drawing, _WIDE - _MARGIN - 52, top + 5)
    top += 22
    heads = [[f"{at}.{head}" for head in range(count)] for at, count in enumerate(network.heads)]
    rows = [senders(network, 0), *heads, [LOGITS]]
    board = board_of(rows, widget.wires, _LEFT - 24)
    _wires(drawing, widget, board, top)
    _chips(drawing, widget, board, top)
    low = _answer(drawing, widget, top)
    drawing.high = round(max(low, top + board.high) + 8)
    return drawing


def _wires(drawing: Drawing, widget: Any, board: Board, top: float) -> None:
    effects = widget.effects()
    largest = max(map(abs, effects.values())) or 1.0
    order = sorted(range(len(widget.wires)), key=lambda at: abs(effects[widget.wires[at]]))
    for at in order:
        effect = effects[widget.wires[at]]
        cut = list(widget.wires[at]) in widget.cuts
        grey = abs(effect) < max(widget.least * largest, words.LEAST)
        share = abs(effect) / (largest if widget.measure == "logit" else 1)
        colour = drawing.theme.grid if grey or cut else SERIES[0 if effect > 0 else 1]
        width = 1 if grey else _THIN + (_THICK - _THIN) * min(1, share)
        path = [(_MARGIN + x, top + y) for x, y in board.paths[at]]
        for start in range(0, len(path) - 1, 3):
            a, b, c, d = path[start : start + 4]
            drawing.curve((a, b, c, d), colour, width)
        if cut:
            a, b, c, d = path[-4:]
            x, y = ((a[i] + 3 * b[i] + 3 * c[i] + d[i]) / 8 for i in range(2))
            drawing.disc(x, y, 8, drawing.theme.paper)
            for way in (-1, 1):
                drawing.line([(x - 4, y - 4 * way), (x + 4, y + 4 * way)], drawing.theme.ink, 2)


def _chips(drawing: Drawing, widget: Any, board: Board, top: float) -> None:
    now, tokens, noun = widget.run(), widget.tokens(), words.noun(widget.network)
    for name, chip in board.chips.items():
        x, y = _MARGIN + chip.x, top + chip.y
        drawing.box(x, y, chip.wide, chip.high, drawing.theme.paper, drawing.theme.ink, 1.5)
        if name not in now.weights:
            drawing.text(name, x + chip.wide / 2, y + chip.high / 2, anchor="middle", bold=True)
            continue
        drawing.text(name, x + 8, y + 13, bold=True, size=14)
        said = textwrap.wrap(
            words.caption(now.weights[name], tokens, noun), max(8, int(chip.wide / 7))
        )
        for at, line in enumerate(said[:2]):
            drawing.text(line, x + 36, y + 12 + 13 * at, size=11)
        for at, into in enumerate(INTO):
            middle = x + chip.wide / 3 * (at + 0.5)
            drawing.text(into, middle, y + chip.high - 8, anchor="middle", size=11, quiet=True)


def _answer(drawing: Drawing, widget: Any, top: float) -> float:
    """The most probable letters, with all wires and with the cuts."""
    x, network = _MARGIN + _LEFT, widget.network
    before, after = widget.answer([]), widget.answer()
    here = network.shown[widget.tokens()[widget.place]]
    drawing.text(f"What comes after “{here}” ({widget.place})?", x, top + 8, bold=True)
    most = before.chances.maximum(after.chances)
    order = most.argsort(descending=True, stable=True)[:_SHOWN].tolist()
    room = _WIDE - _MARGIN - x - 160
    for at, token in enumerate(order):
        y = top + 36 + 30 * at
        drawing.text(
            clipped(network.shown[token], 4), x + 24, y, anchor="end", bold=token == after.first
        )
        said = words.percent(before.chances[token])
        both = ((SERIES[4], before), (SERIES[0], after))
        for row, (colour, answer) in enumerate(both if widget.cuts else both[:1]):
            wide = max(1.0, room * float(answer.chances[token]))
            drawing.box(x + 32, y - 11 + 11 * row, wide, 10, colour)
        if widget.cuts:
            said += f" → {words.percent(after.chances[token])}"
        drawing.text(said, _WIDE - _MARGIN, y, anchor="end", size=11)
    y = top + 36 + 30 * len(order)
    drawing.text(
        "grey: all wires" + ", blue: with the cuts" * bool(widget.cuts), x, y, quiet=True, size=11
    )
    carried = f"A cut wire carries: {widget.instead}"
    carried += f", “{widget.other()}”." if widget.instead == "another text" else "."
    for at, line in enumerate(textwrap.wrap(carried, 50)):
        drawing.text(line, x, y + 24 + 15 * at, size=11)
    return y + 60
