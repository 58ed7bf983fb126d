"""Numbers and lists in sentences, as the page writes them (``src/lib/plane.js``)."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def two(number: float) -> str:
    """Two digits after the point, as JavaScript's toFixed rounds; a true minus, and no minus 0."""
    return fixed(number, 2)


def fixed(number: float, digits: int) -> str:
    """So many digits after the point, likewise."""
    unit = "1" if not digits else f"0.{'0' * (digits - 1)}1"
    found = Decimal(number).quantize(Decimal(unit), ROUND_HALF_UP)
    return str(abs(found)) if not found else str(found).replace("-", "−")
