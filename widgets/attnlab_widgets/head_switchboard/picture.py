"""The still picture of HeadSwitchboard: the heads with their maps, and the text as lamps."""

from typing import Any

import numpy as np

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, THEMES, blend
from attnlab.lens.head_states import MASKED
from attnlab_widgets.head_switchboard.writers import largest

_WIDE, _MARGIN, _GAP = 920, 24, 16
_LAMP, _PITCH = 50, 58
_BARS, _NUMBERS = 56, 14  # the height of the bars of who writes, and of a line of numbers
_LIT, _DARK = CIVIDIS[-1], CIVIDIS[0]
_PALETTE = [blend(CIVIDIS, at / 63) for at in range(64)]


def picture(board: Any) -> Drawing:
    """What the widget shows in its present state."""
    heads = board._states.heads
    per_row = min(len(heads), 4)
    side = min(184, (_WIDE - 2 * _MARGIN) // per_row - _GAP)
    rows = -(-len(heads) // per_row)
    lamps, lines = _placed([str(token) for token in board._labels])
    above = 56 + rows * (side + 40)
    known = board._written is not None
    top = above + (_BARS + 4 * _NUMBERS + 36 if known else 0)
    drawing = Drawing(_WIDE, top + 28 + lines * _PITCH + 24, THEMES[board.theme])
    drawing.text(board.description(), _MARGIN, 24, bold=True, size=15)
    for bit, head in enumerate(heads):
        x = _MARGIN + (bit % per_row) * (side + _GAP)
        y = 48 + (bit // per_row) * (side + 40)
        _card(drawing, board, head, x, y, side)
    if known:
        _writers(drawing, board, above)
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


def _writers(drawing: Drawing, board: Any, top: float) -> None:
    """A bar for each part of the logits, at most 20, and their sum."""
    theme, count = drawing.theme, int(board._repeating().sum())
    some = "" if count == len(board._ids) - 1 else " that repeat"
    title = f"Who writes the {board._unit}s{some}? (part of the logit, mean of {count})"
    drawing.text(title, _MARGIN, top + 8, bold=True, size=14)
    if board._board["writers"]["choices"] == 1 and board.silent:
        why = "With all heads on: a text this long has too many choices to store."
        drawing.text(why, _WIDE - _MARGIN, top + 8, anchor="end", quiet=True)
    shown = largest(board.writers(), 20)
    shown["sum"] = sum(shown.values())
    short = {each["name"]: each["short"] for each in board._board["writers"]["parts"]}
    high, low = max(0.0, *shown.values()), min(0.0, *shown.values())
    unit = _BARS / (high - low or 1.0)
    zero = top + 24 + _NUMBERS + high * unit
    step = (_WIDE - 2 * _MARGIN) / len(shown)
    drawing.line([(_MARGIN, zero), (_WIDE - _MARGIN, zero)], theme.grid)
    for at, (name, value) in enumerate(shown.items()):
        middle, wide = _MARGIN + step * (at + 0.5), min(46, step * 0.62)
        colour = theme.ink if name == "sum" else SERIES[0 if value >= 0 else 1]
        bar = abs(value) * unit
        number = f"{value:+.{2 if step > 40 else 1}f}".replace("-", "−")
        below = value < 0 and float(f"{value:.2f}") != 0
        drawing.box(middle - wide / 2, zero if below else zero - bar, wide, max(bar, 0.5), colour)
        y = zero + bar + 9 if below else zero - bar - 7
        drawing.text(number if number.strip("+−0.") else "0", middle, y, anchor="middle", size=10)
        label = name if step > 84 else short.get(name, name)
        foot = top + 24 + _BARS + 3 * _NUMBERS
        drawing.text(label, middle, foot, anchor="middle", size=10, quiet=True)


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
