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
    found = to_fixed(number, digits)
    return found.replace("-", "−") if float(found) else found.removeprefix("-")


def to_fixed(number: float, digits: int) -> str:
    """What JavaScript's toFixed writes, where Python would round a tie to an even digit."""
    return str(Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
