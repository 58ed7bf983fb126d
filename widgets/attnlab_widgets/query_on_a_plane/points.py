"""Points of the plane that a reader may move, and their names: checks of what is given."""

from typing import Any

from attnlab.core.arguments import check_names
from attnlab.core.arrays import numbers
from attnlab.figures.labels import visible

FARTHEST = 100.0
LETTERS = "abcdefgh"


def points(name: str, given: Any, most: int) -> list[list[float]]:
    """1 to ``most`` points (m, 2)."""
    array = numbers(name, given, "m 2")
    if array.shape[1] != 2 or len(array) > most:
        raise ValueError(
            f"`{name}` should be 1 to {most} points of the plane, (m, 2), got {array.shape}"
        )
    return [_near(name, each) for each in array.tolist()]


def point(name: str, given: Any) -> list[float]:
    """Two coordinates."""
    array = numbers(name, given, "2")
    if array.shape != (2,):
        raise ValueError(f"`{name}` should be two coordinates, got {len(array)}")
    return _near(name, array.tolist())


def _near(name: str, given: list[float]) -> list[float]:
    if max(map(abs, given)) > FARTHEST:
        raise ValueError(f"`{name}` has coordinates beyond ±{FARTHEST:g}; make them smaller")
    return given


def different_names(names: Any, count: int, what: str) -> list[str]:
    """As many different names as there are points, made visible; ``what`` a point is called."""
    found = [visible(name) for name in check_names("names", names)]
    if len(found) != count or len(set(found)) < count:
        raise ValueError(
            f"`names` should be {count} different names, one for each {what}, got {found}"
        )
    return found
