"""The colours of maps, their bars and round numbers, the same in every figure."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.core.arguments import check_flag, check_positive, check_texts
from attnlab.figures.labels import escaped
from attnlab.figures.theme import CIVIDIS, SIGNED, Theme, blend

WEIGHT = "attention weight"
ALL = 1e-3
"""A weight this close to 1 is all of it: rows are softmaxes in float32 or less."""
_STOPS = 32
_LETTER = 6.3  # pixels of a letter of a bar's title


def named(quantity: str | None, root: bool | None) -> tuple[str, bool | None]:
    """What the values of a map are called, and whether their scale is the square root.

    Without a ``quantity`` they are weights of attention, whose scale it is. None: the values are no
    weights.
    """
    if quantity is not None:
        check_texts(quantity=quantity)
    if root is not None:
        check_flag("root", root)
    if quantity is None:
        return WEIGHT, root is not False
    return quantity, root


def scale_end(most: float, root: bool | None, largest: float | None) -> float:
    """The end of the scale of values up to ``most``: ``largest`` where it is given.

    Otherwise it is 1 with ``root``, and more only where weights are above it.
    """
    if largest is not None:
        return check_positive("largest", largest)
    if root and most <= 1 + ALL:
        return 1.0
    return most or 1.0


def nice_step(step: float) -> float:
    """The smallest of 1, 2, 5 and 10 times a power of ten that is at least ``step``."""
    power = 10.0 ** np.floor(np.log10(step))
    return float(next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * 0.999))


def round_ticks(low: float, high: float, steps: int = 5) -> tuple[list[float], list[str]]:
    """At most ``steps`` + 1 round numbers between ``low`` and ``high``, and their texts."""
    step = nice_step((high - low) / steps)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    values = [float(at) * step for at in np.arange(first, last + 1)]
    digits = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    if digits > 4:
        return values, [f"{value + 0.0:.4g}" for value in values]
    return values, [f"{value + 0.0:.{digits}f}" for value in values]


def colour_axis(
    look: Theme,
    low: float,
    high: float,
    unit: int | None,
    quantity: str,
    length: float,
    *,
    root: bool | None,
) -> dict[str, Any]:
    """The colours of a map of values from ``low`` to ``high``, stored as multiples of 1/``unit``.

    ``root`` is True for weights of attention: their scale is the square root, and the title of the
    bar says so, and where it ends elsewhere than at 1. It is False for weights that are to be
    linear, which the bar says as well, and None for other values, which are always linear. ``low``
    below 0 takes the colours of both signs. ``length``: of the bar, in pixels.
    """
    factor = unit or 1
    values, texts = round_ticks(low, high)
    title = f"{quantity}, linear" if low == 0 and root is False else quantity
    scale = CIVIDIS if low == 0 else SIGNED
    stops = [[at / (len(scale) - 1), colour] for at, colour in enumerate(scale)]
    if low == 0 and root:
        stops = [[(at / _STOPS) ** 2, blend(CIVIDIS, at / _STOPS)] for at in range(_STOPS + 1)]
        end = "" if high == 1 else f" up to {high:.3g}"
        title = f"{quantity}{end}, square root"
    return {
        "colorscale": stops,
        "cmin": low * factor,
        "cmax": high * factor,
        "colorbar": colour_bar(look, title, [value * factor for value in values], texts, length),
    }


def colour_bar(
    look: Theme, title: str, values: Sequence[float], texts: Sequence[str], length: float
) -> dict[str, Any]:
    """A colour bar of ``length`` pixels to the right of the map, ``texts`` at ``values``.

    The empty line before the title keeps it clear of the numbers. A title that is longer than the
    bar takes several lines.
    """
    lines = "<br>".join(map(escaped, lines_of(title, length + 20)))
    return {
        "title": {"text": f"<br>{lines}", "side": "right", "font": {"size": 12}},
        "tickvals": list(values),
        "ticktext": list(texts),
        "tickfont": {"size": 11, "color": look.quiet},
        "thickness": 12,
        "lenmode": "pixels",
        "len": length,
        "x": 1,
        "xpad": 14,
        "outlinewidth": 0,
    }


def lines_of(title: str, room: float) -> list[str]:
    """The title of a bar in as few lines of ``room`` pixels as hold it, of about equal length."""
    most = len(_wrapped(title, max(1, int(room / _LETTER))))
    for width in range(1, len(title) + 1):
        if len(lines := _wrapped(title, width)) <= most:
            return lines
    return [title]


def _wrapped(title: str, letters: int) -> list[str]:
    return textwrap.wrap(title, letters, break_long_words=False, break_on_hyphens=False)
