"""Colour bars and round numbers, the same in every figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab.figures.labels import escaped
from attnlab.figures.theme import Theme


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
