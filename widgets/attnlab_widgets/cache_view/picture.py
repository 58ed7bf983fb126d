"""The still picture of CacheView: which tokens each layer keeps, its bytes, and how they grow."""

import math
import textwrap
from typing import Any

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, THEMES
from attnlab_widgets.cache_view.bills import Kind, total
from attnlab_widgets.cache_view.words import size

_WIDE, _MARGIN, _TOP, _HIGH = 952, 24, 96, 390
_KEPT, _BYTES = 250, 150  # widths of the two columns of the stack
_LATER = 590  # where the growth begins
LEAST = 2.0  # pixels of what is kept, however little


def picture(widget: Any) -> Drawing:
    """What the widget shows in its present state."""
    drawing = Drawing(_WIDE, _TOP + _HIGH + 34, THEMES[widget.theme])
    for at, line in enumerate(textwrap.wrap(widget.description(), 122)):
        drawing.text(line, _MARGIN, 20 + 18 * at, bold=True, size=13)
    _stack(drawing, widget)
    _growth(drawing, widget)
    return drawing


def colour_of(names: list[str], name: str) -> str:
    """The colour of a kind, by its place among those of the model."""
    return SERIES[names.index(name) % len(SERIES)]


def _stack(drawing: Drawing, widget: Any) -> None:
    kinds, theme = widget.preset.kinds, drawing.theme
    sizes, names = widget.layer_bytes(), list(widget.preset.kinds)
    row = min(26, (_HIGH - 30) / len(sizes))
    bottom, largest = _TOP + 24 + row * len(sizes), max(1.0, *sizes)
    left, right = _MARGIN + 30, _MARGIN + 30 + _KEPT + 24
    drawing.text("Tokens that each layer keeps", left, _TOP, bold=True, size=14)
    drawing.text("and their bytes", right, _TOP, bold=True, size=14)
    for at, (name, bytes_) in enumerate(zip(widget.layers, sizes, strict=True)):
        y, kind = bottom - row * (at + 1), kinds[name]
        high, colour = max(1.0, row - (2 if row > 8 else 1)), colour_of(names, name)
        drawing.box(left, y, _KEPT, high, theme.panel)
        begin, end = extent(kind, widget.tokens, _KEPT)
        if end > begin:
            drawing.box(left + begin, y, end - begin, high, colour)
        drawing.box(right, y, max(LEAST if bytes_ else 0, _BYTES * bytes_ / largest), high, colour)
        if row >= 11 or at % 5 == 0:
            drawing.text(str(at), left - 8, y + high / 2, anchor="end", size=11, quiet=True)
        if row >= 11 or at in (0, len(sizes) - 1):
            drawing.text(size(bytes_), right + _BYTES + 8, y + high / 2, size=11, quiet=True)
    drawing.text("first token", left, bottom + 14, size=11, quiet=True)
    drawing.text("newest", left + _KEPT, bottom + 14, anchor="end", size=11, quiet=True)


def extent(kind: Kind, tokens: int, wide: float) -> tuple[float, float]:
    """Where what is kept begins and ends, of ``wide`` pixels for all tokens; a state stands at the
    right, as it holds what it holds of all of them."""
    if not kind.per_token:
        return (wide - 8, wide) if kind.fixed else (0, 0)
    kept = tokens if kind.cap is None else min(tokens, kind.cap)
    return wide - max(LEAST, wide * kept / tokens), wide


def _growth(drawing: Drawing, widget: Any) -> None:
    kinds, theme = widget.preset.kinds, drawing.theme
    lengths = [2**power for power in range(21)]
    now = [total(kinds, widget.layers, n, widget.bits) for n in lengths]
    model = [total(kinds, widget.preset.layers, n) for n in lengths]
    low = math.floor(math.log10(max(1.0, min(x for x in (*now, *model, 1e15) if x > 0))))
    high = max(low + 1, math.ceil(math.log10(max(1.0, *now, *model))))
    left, wide, top, tall = _LATER + 56, 266, _TOP + 24, 250

    def place(n: int, bytes_: float) -> tuple[float, float]:
        share = (math.log10(max(bytes_, 10.0**low)) - low) / (high - low)
        return left + wide * math.log2(n) / 20, top + tall * (1 - share)

    drawing.text("All layers together", _LATER, _TOP, bold=True, size=14)
    for power in range(low, high + 1, max(1, (high - low) // 6)):
        y = place(1, 10.0**power)[1]
        drawing.line([(left, y), (left + wide, y)], theme.grid)
        drawing.text(size(10.0**power), left - 8, y, anchor="end", size=11, quiet=True)
    for power, said in ((0, "1"), (10, "1,024"), (20, "1,048,576")):
        drawing.text(said, left + wide * power / 20, top + tall + 14, anchor="middle", size=11,
                     quiet=True)  # fmt: skip
    drawing.text("tokens", left + wide / 2, top + tall + 32, anchor="middle", size=11, quiet=True)
    drawing.line([place(*each) for each in zip(lengths, model, strict=True)], theme.quiet, 2, "6 4")
    drawing.line([place(*each) for each in zip(lengths, now, strict=True)], SERIES[0], 2.5)
    drawing.disc(*place(widget.tokens, widget.bytes()), 5, SERIES[0])
    drawing.text("— now, - - the model in 16 bits", _LATER, top + tall + 54, size=11, quiet=True)
    for at, line in enumerate(textwrap.wrap(f"Source: {widget.preset.source}.", 56)):
        drawing.text(line, _LATER, top + tall + 74 + 15 * at, size=11, quiet=True)
