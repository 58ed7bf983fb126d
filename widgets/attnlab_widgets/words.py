"""Numbers and lists in sentences, as the page writes them (``src/lib/plane.js``)."""

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def clipped(text: str, most: int) -> str:
    """At most so many characters, the last of which is … where some are left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def two(number: float) -> str:
    """Two digits after the point, as JavaScript's toFixed rounds; a true minus, and no minus 0."""
    return fixed(number, 2)


def fixed(number: float, digits: int) -> str:
    """So many digits after the point, likewise."""
    found = to_fixed(number, digits)
    return found.replace("-", "−") if float(found) else found.removeprefix("-")


def to_fixed(number: float, digits: int) -> str:
    """What JavaScript's toFixed writes, where Python would round a tie to an even digit: from 1e21
    on and for what is not finite it writes the number as it is."""
    if not abs(number) < 1e21:
        written = {math.inf: "Infinity", -math.inf: "-Infinity"}
        return written.get(number, "NaN" if math.isnan(number) else str(number))
    return str(Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
