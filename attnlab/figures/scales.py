"""The colours of maps, their bars and round numbers, the same in every figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.figures.labels import escaped
from attnlab.figures.theme import CIVIDIS, SIGNED, Theme, blend

WEIGHT = "attention weight"
_STOPS = 32


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
    look: Theme, low: float, high: float, unit: int | None, quantity: str, length: float
) -> dict[str, Any]:
    """The colours of a map of values from ``low`` to ``high``, stored as multiples of 1/``unit``.

    Attention weights have the scale of all maps of weights: the square root, from 0 to 1. The title
    of the bar says what departs from it: another end, or another quantity, whose scale is linear.
    ``low`` below 0 takes the colours of both signs.
    """
    factor = unit or 1
    values, texts = round_ticks(low, high)
    title = f"{quantity}, linear" if low == 0 else quantity
    scale = CIVIDIS if low == 0 else SIGNED
    stops = [[at / (len(scale) - 1), colour] for at, colour in enumerate(scale)]
    if low == 0 and quantity == WEIGHT:
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

    The empty line before the title keeps it clear of the numbers.
    """
    return {
        "title": {"text": f"<br>{escaped(title)}", "side": "right", "font": {"size": 12}},
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
