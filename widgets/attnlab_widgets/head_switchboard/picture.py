"""The still picture of HeadSwitchboard: the heads with their maps, and the text as lamps."""

from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, THEMES, blend
from attnlab.lens.head_states import MASKED

_WIDE, _MARGIN, _GAP = 920, 24, 16
_LAMP, _PITCH = 50, 58
_LIT, _DARK = CIVIDIS[-1], CIVIDIS[0]
_PALETTE = [blend(CIVIDIS, at / 63) for at in range(64)]


def picture(board: Any) -> Drawing:
    """What the widget shows in its present state."""
    heads = board._states.heads
    per_row = min(len(heads), 4)
    side = min(184, (_WIDE - 2 * _MARGIN) // per_row - _GAP)
    rows = -(-len(heads) // per_row)
    lamps, lines = _placed([str(token) for token in board._labels])
    top = 56 + rows * (side + 40)
    drawing = Drawing(_WIDE, top + 28 + lines * _PITCH + 24, THEMES[board.theme])
    drawing.text(board.description(), _MARGIN, 24, bold=True, size=15)
    for bit, head in enumerate(heads):
        x = _MARGIN + (bit % per_row) * (side + _GAP)
        y = 48 + (bit // per_row) * (side + 40)
        _card(drawing, board, head, x, y, side)
    drawing.text(f"Which {board._unit}s are predicted?", _MARGIN, top + 8, bold=True, size=14)
    _lamps(drawing, board, lamps, top + 28)
    key = (
        "number: importance · yellow ✓: predicted · dark ✗: right with all heads, wrong now · "
        "pale: wrong with all, too"
    )
    drawing.text(key, _MARGIN, drawing.high - 14, quiet=True)
    return drawing


def _card(drawing: Drawing, board: Any, head: Any, x: float, y: float, side: float) -> None:
    theme, on = drawing.theme, list(head) not in board.silent
    levels = board.map_of(head)
    masked = levels == MASKED
    palette = _PALETTE if on else [blend((theme.paper, colour), 0.25) for colour in _PALETTE]
    drawing.map(np.where(masked, 0, levels // 4), palette, x, y, side, side)
    drawing.hatch(masked, x, y, side, side)
    name, left = f"head {head[0]}.{head[1]}", x + 68
    drawing.text(name, x, y + side + 16, bold=True)
    drawing.box(left, y + side + 7, 34, 18, SERIES[0] if on else theme.quiet)
    drawing.disc(left + (25 if on else 9), y + side + 16, 6, theme.paper)
    needed = board.importance()[board._states.heads.index(head)]
    drawing.text(f"{'on' if on else 'silent'} · {needed}", left + 42, y + side + 16, quiet=True)


def _placed(tokens: list[str]) -> tuple[list[tuple[float, int, float]], int]:
    """The left end, the line and the width of the lamp of each token; and the number of lines."""
    room, short = _WIDE - 2 * _MARGIN, all(len(token) < 3 for token in tokens)
    lines = 1
    while (room + 3) / -(-len(tokens) // lines) < 24:
        lines += 1
    equal = min(40, (room + 3) / -(-len(tokens) // lines) - 3)
    found, x, line = [], 0.0, 0
    for token in tokens:
        width = equal if short else 12 + 8.5 * len(token)
        if x + width > room + 1:
            x, line = 0.0, line + 1
        found.append((_MARGIN + x, line, width))
        x += width + 3
    return found, line + 1


def _lamps(drawing: Drawing, board: Any, places: Any, top: float) -> None:
    theme = drawing.theme
    right, whole = board.right().tolist(), board._right(0).tolist()
    guesses = board.guesses()
    for at, ((x, line, width), token) in enumerate(zip(places, board._labels, strict=True)):
        y = top + line * _PITCH
        now, before = (right[at - 1], whole[at - 1]) if at else (False, False)
        lost = before and not now
        fill = _LIT if now else _DARK if lost else theme.panel
        ink = "#1f2329" if now else "#fefefd" if lost else theme.quiet
        drawing.box(x, y, width, _LAMP, fill, theme.grid)
        middle = x + width / 2
        drawing.text(token, middle, y + 26, anchor="middle", size=14, bold=at > 0, colour=ink)
        if at:
            sign = "✓" if now else "✗" if lost else "·"
            drawing.text(sign, middle, y + 9, anchor="middle", size=10, colour=ink)
            if not now:
                guess = guesses[at - 1][:4] if width < 34 else guesses[at - 1]
                drawing.text(guess, middle, y + 42, anchor="middle", size=10, colour=ink)
