"""The counts of a long sequence from those of short ones, where they follow a law.

A layer that works by blocks, chunks or steps does the same for each: at lengths that leave the same
remainder by the size of a block, its FLOPs are a polynomial of the length, and so is what else is
counted. Its degree is two at most (pairs of blocks). Three lengths determine it, and a fourth must
lie on it to the last digit, or nothing is said: then the length itself is counted.

The largest tensor follows no polynomial, as at short lengths a block may be larger than anything of
the size of the sequence; nor do the most bytes alive. So each kind of tensor, by the operation that
makes it and its number of axes, has a law of its own, and the largest is the answer. Elements that
are written may depend on how blocks are put together, by a fraction of a per cent: these alone may
lie beside a straight line.
"""

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

Counts = dict[Any, int]
"""What was counted, by its name; (largest or peak, operation, axes) are those of a kind."""

PERIODS = (64, 512)  # multiples of the usual sizes of blocks, chunks and windows
STEPS = (4, 5, 6, 7)
FAR = 24  # of the shorter periods, where the law is tried once more
BESIDE = Fraction(1, 50)  # of its value, that a count may lie beside a straight line
EXACT = ("flops", "linear", "saved", "parameters")


def by_law(counts_at: Callable[[int], Counts], n: int) -> Counts | None:
    """The counts at length n; None where no law holds, or where counting n itself is as quick."""
    short, long = PERIODS
    tried = [n % short + step * short for step in (*STEPS, FAR)]
    for lengths in (tried, [n % long + step * long for step in STEPS]):
        if n > lengths[-1]:
            found = {length: counts_at(length) for length in lengths}
            if all_grow(found) and (known := _found(found, n)):
                return known
    return None


def all_grow(found: dict[int, Counts]) -> bool:
    """Whether more operations are called at each length than at the one before: for each block."""
    numbers = [counts["operations"] for counts in found.values()]
    return all(a < b for a, b in itertools.pairwise(numbers))


def _found(found: dict[int, Counts], n: int) -> Counts | None:
    series = {
        name: [(length, each.get(name, 0)) for length, each in found.items()]
        for name in {name for each in found.values() for name in each}
    }
    known = {name: law(series[name], n) for name in EXACT}
    known["written"] = law(series["written"], n) or near_a_line(series["written"], n)
    for what in ("largest", "peak"):
        known[what] = _most([of for name, of in series.items() if name[0] == what], n)
    if any(value is None for value in known.values()):
        return None
    return {name: value for name, value in known.items() if value is not None}


def law(points: list[tuple[int, int]], n: int) -> int | None:
    """The value at n of the polynomial through three points; None if it misses another."""
    through = points[:3]
    if any(_at(through, length) != value for length, value in points):
        return None
    value = _at(through, n)
    return int(value) if value.denominator == 1 else None


def near_a_line(points: list[tuple[int, int]], n: int) -> int | None:
    """The value at n of the line through the ends, if the others lie close to it."""
    ends = [points[0], points[-1]]
    if any(abs(_at(ends, length) - value) > BESIDE * value for length, value in points):
        return None
    return round(_at(ends, n))


def _most(kinds: list[list[tuple[int, int]]], n: int) -> int | None:
    """The largest at n of several; None if one without a law could be larger.

    A kind without a law is made of a few blocks at once. It grows at most as fast as it did.
    """
    laws = [law(points, n) for points in kinds]
    most = max((value for value in laws if value is not None), default=0)
    for points, value in zip(kinds, laws, strict=True):
        before = points[0][0]
        steepest = max(Fraction(b - a, y - x) for (x, a), (y, b) in itertools.pairwise(points))
        if value is None and max(of for _, of in points) + max(steepest, 0) * (n - before) > most:
            return None
    return most


def _at(points: list[tuple[int, int]], n: int) -> Fraction:
    """Lagrange's polynomial, exactly."""
    total = Fraction(0)
    for x, y in points:
        term = Fraction(y)
        for other, _ in points:
            if other != x:
                term *= Fraction(n - other, x - other)
        total += term
    return total
