"""The row of two calls that were timed in the same rounds: how many times as long one takes.

A ratio alone hides what was compared. So the row's note says what each call took, by the clock and
of the processor, and what each of them computes.
"""

import statistics
from typing import NamedTuple

from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, quartiles


class Keys(NamedTuple):
    """Keys of one query, in the mean over the queries: those that it attends to, and those of which
    a product with it is computed, masked ones included."""

    seen: float
    computed: float


def all_keys(n: int, causal: bool = False) -> Keys:
    """Keys that PyTorch's fused attention reads on a CPU, where it leaves out blocks of keys that
    come after every query of a block."""
    block = 256 if n >= 768 else 64 if n >= 192 else 32
    return Keys((n + 1) / 2, min(n, (n + block) / 2)) if causal else Keys(n, n)


Work = Keys | tuple[Keys, Keys] | str
"""Keys of both calls, or of each; or a sentence, where no queries are compared with keys."""


def ratio(
    figure: str,
    over: Timing,
    under: Timing,
    *,
    work: Work,
    at_most: float | None = None,
    at_least: float | None = None,
    of_processor: bool = False,
) -> Row:
    """How many times as long `over` takes as `under`: the median of the rounds, and quartiles.

    `work` has the keys of both calls; of a pair the first belongs to `over`. `of_processor`: as
    much of the processor instead of as long by the clock, for long calls, which other programs
    interrupt.
    """
    own, base = (each.processor if of_processor else each.seconds for each in (over, under))
    ratios = [one / other for one, other in zip(own, base, strict=True)]
    note = f"{taken(over)}; {taken(under)}; {_stated(over.name, under.name, work)}"
    middle, spread = statistics.median(ratios), quartiles(ratios)
    return Row(figure, middle, "×", at_most, at_least, spread, note)


def taken(timing: Timing) -> str:
    """What a call took, by the clock and of the processor, in words."""
    clock, user, system = (1e3 * each for each in (timing.median, timing.user, timing.system))
    return f"{timing.name}: {clock:.3g} ms (user {user:.3g}, system {system:.3g})"


def _stated(over: str, under: str, work: Work) -> str:
    if isinstance(work, str):
        return work
    first, second = (work, work) if isinstance(work, Keys) else work
    parts = []
    for what in Keys._fields:
        one, other = (f"{getattr(keys, what):,.0f}" for keys in (first, second))
        apart = f"{one} {what} by {over}, {other} by {under}"
        parts.append(apart if one != other else f"{one} {what} in both")
    return f"keys of a query: {'; '.join(parts)}"
