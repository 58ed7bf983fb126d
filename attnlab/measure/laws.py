"""The counts of a long sequence from those of short ones, where they follow a law.

A layer that works by blocks, chunks or steps does the same for each: at lengths that leave the same
remainder by the size of a block, its FLOPs are a polynomial of the length, and so is what else is
counted. Its degree is two at most (pairs of blocks). Three lengths determine it, and a fourth must
lie on it to the last digit, or nothing is said: then the length itself is counted.

The largest tensor follows no polynomial, as at short lengths a block may be larger than anything of
the size of the sequence; nor do the most bytes alive. So each kind of tensor, by the operation that
makes it and its number of axes, has a law of its own, and the largest is the answer.

How many blocks are put together depends on the length, and with it about a per cent of the elements
that are written or kept for the backward pass, and the most bytes alive where those of a block
count: these three alone may be taken from a straight line, and are about right.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

Counts = dict[Any, int]
"""What was counted, by its name; (largest or peak, operation, axes) are those of a kind."""

Points = list[tuple[int, int]]
"""Values by their lengths."""

STEPS = (4, 5, 6, 7)
LADDER = {
    1: (8, 9, 10, 11, 80, 120),
    16: (*STEPS, 40),
    64: (*STEPS, 24),
    512: (*STEPS, 13),
    1024: (*STEPS, 13),
}
"""A multiple of the size of a block, chunk or window → how many of them are counted; 1 is for loops
over tokens. The last is far away, where larger blocks would show, and a logarithm of the length."""
OWN = (*STEPS, 16)
"""How many blocks are counted of a size that the layer itself names."""
LONG = 3000  # tokens: several of the largest blocks
AS_QUICK = 4  # times the operations of the longest of such lengths, n itself is counted
BESIDE = Fraction(1, 50)  # of its value, that a count may lie beside a straight line
EXACT = ("flops", "linear", "parameters")
NEARLY = ("written", "saved")


def by_law(counts_at: Callable[[int], Counts], n: int, blocks: Iterable[int] = ()) -> Counts | None:
    """The counts at length n; None where no law holds, or where counting n itself is as quick.

    ``blocks`` are sizes that the layer names. Where its chunks grow with the length up to such a
    size, as its root does, the law begins at the square of this size.
    """
    own = sorted({size for size in blocks if size > 1})
    near = [(size, OWN) for size in own if size not in LADDER]
    far = [(size, tuple(size + more for more in (0, 1, 2, size))) for size in own if size <= 64]
    tokens, *small, half, whole = LADDER.items()
    for period, steps in (tokens, *near, *small, *far, half, whole):
        lengths = [n % period + step * period for step in steps]
        if lengths[-1] >= n:
            continue
        found = _counted(lengths, counts_at, n)
        if found is None:
            return None
        if found and (known := _found(found, n)):
            return known
    return None


def _counted(
    lengths: list[int], counts_at: Callable[[int], Counts], n: int
) -> dict[int, Counts] | None:
    """The counts at some lengths; none of them where no law can hold, None where n is as quick.

    Far below the size of a block nothing is known of what blocks cost, so lengths between which no
    more operations are called are the end, as is a fourth one that lies on no polynomial. At
    thousands of tokens, the first and the last of them tell how much more n itself would cost.
    """
    long = lengths[-1] >= LONG
    found: dict[int, Counts] = {}
    for length in (lengths[0], lengths[-1], *lengths[1:-1]) if long else lengths:
        found[length] = counts_at(length)
        numbers = [found[each]["operations"] for each in sorted(found)]
        if long and len(found) == 2:
            slope = Fraction(numbers[1] - numbers[0], lengths[-1] - lengths[0])
            if numbers[1] + slope * (n - lengths[-1]) <= AS_QUICK * numbers[1]:
                return None
        if not long and any(after <= before for before, after in itertools.pairwise(numbers)):
            return {}
        if len(found) > 3 and not _on_a_law(found, n):
            return {}
    return dict(sorted(found.items()))


def _on_a_law(found: dict[int, Counts], n: int) -> bool:
    series, _ = _series(found)
    return all(law(series[name], n) is not None for name in EXACT)


def _series(found: dict[int, Counts]) -> tuple[dict[Any, Points], Points]:
    """What was counted at each length, by its name; FLOPs without those of sorts, which follow."""
    series = {
        name: [(length, each.get(name, 0)) for length, each in found.items()]
        for name in {name for each in found.values() for name in each}
    }
    sorts = series.pop("sorts", [(length, 0) for length in found])
    both = zip(series["flops"], sorts, strict=True)
    series["flops"] = [(length, all_ - sort) for (length, all_), (_, sort) in both]
    return series, sorts


def _found(found: dict[int, Counts], n: int) -> Counts | None:
    series, sorts = _series(found)
    compared = n_log_n(sorts, n)
    if compared is None:
        return None
    known = {name: law(series[name], n) for name in EXACT}
    known["flops"] = None if known["flops"] is None else known["flops"] + compared
    known |= {name: law(series[name], n) or near_a_line(series[name], n) for name in NEARLY}
    for what in ("largest", "peak"):
        known[what] = _most([of for name, of in series.items() if name[0] == what], n)
    if known["peak"] is None:
        known["peak"] = round(_at(series["peak"][-2:], n))
    if any(value is None for value in known.values()):
        return None
    return {name: value for name, value in known.items() if value is not None}


def law(points: Points, n: int) -> int | None:
    """The value at n of the polynomial through three points; None if it misses another."""
    through = points[:3]
    if any(_at(through, length) != value for length, value in points):
        return None
    value = _at(through, n)
    return int(value) if value.denominator == 1 else None


def n_log_n(points: Points, n: int) -> int | None:
    """The comparisons of sorts of n elements, as many at any length; None if they are not."""
    (x, first), *_ = points
    rows = round(first / (x * math.log2(x)))
    if any(abs(rows * x * math.log2(x) - value) > rows for x, value in points):
        return None
    return round(rows * n * math.log2(n))


def near_a_line(points: Points, n: int) -> int | None:
    """The value at n of the line through the ends, if the others lie close to it."""
    ends = [points[0], points[-1]]
    if any(abs(_at(ends, length) - value) > BESIDE * value for length, value in points):
        return None
    return round(_at(ends, n))


def proportional(points: Points, n: int) -> int | None:
    """The value at n of what is constant first, then larger, and as many times the length."""
    (x, a), (y, b) = points[-2:]
    before = {value for _, value in points[:-2]}
    grows = a * y == b * x and len(before) == 1 and before < {*before, a} and a >= max(before)
    return a * n // x if grows else None


def _most(kinds: list[Points], n: int) -> int | None:
    """The largest at n of several; None if one without a law could be larger.

    A kind without a law is made of a few blocks at once. It grows at most as fast as it did.
    """
    laws = [law(points, n) or proportional(points, n) for points in kinds]
    most = max((value for value in laws if value is not None), default=0)
    for points, value in zip(kinds, laws, strict=True):
        slopes = (Fraction(b - a, y - x) for (x, a), (y, b) in itertools.pairwise(points))
        steepest = max(Fraction(0), *slopes)
        if value is None and max(of + steepest * (n - x) for x, of in points) > most:
            return None
    return most


def _at(points: Points, n: int) -> Fraction:
    """Lagrange's polynomial, exactly."""
    total = Fraction(0)
    for x, y in points:
        term = Fraction(y)
        for other, _ in points:
            if other != x:
                term *= Fraction(n - other, x - other)
        total += term
    return total
