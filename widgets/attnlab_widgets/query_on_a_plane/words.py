"""What a query does to its keys, in a sentence; ``src/lib/plane.js`` says the same on the page."""

import math
from collections.abc import Sequence

from attnlab_widgets.words import fixed, listed, two

_ALIKE = 1e-9  # scores that differ by less are the same


def announcement(
    names: Sequence[str],
    keys: Sequence[Sequence[float]],
    query: Sequence[float],
    scores: Sequence[float],
    weights: Sequence[float],
    masked: Sequence[int],
) -> str:
    """Which key gets most, and why."""
    seen = [j for j in range(len(names)) if j not in masked]
    if not seen:
        return "Every key is masked: all weights are 0, and so is the output."
    order = sorted(seen, key=lambda j: -scores[j])  # keys of one score stay in order
    first = order[0]
    best = [j for j in order if scores[first] - scores[j] < _ALIKE]
    if len(seen) == 1:
        said = f"Only key {names[first]} is left, so it gets 1, wherever the query is."
    elif len(best) == len(seen):
        said = _all_alike(len(seen), query, weights[first])
    elif len(best) > 1:
        said = (
            f"Keys {listed([names[j] for j in best])} have the same score, "
            f"{two(scores[first])}, so each gets {two(weights[first])}."
        )
    else:
        said = _one_wins(names, scores, weights, order) + _but_longer(names, keys, query, order)
    return said + _left_out(names, masked)


def _all_alike(count: int, query: Sequence[float], weight: float) -> str:
    if math.hypot(*query) < _ALIKE:
        why = "The query is zero, so every score is 0"
    else:
        why = "All scores are the same"
    return f"{why}: each of the {count} keys gets {two(weight)}."


def _one_wins(
    names: Sequence[str], scores: Sequence[float], weights: Sequence[float], order: Sequence[int]
) -> str:
    first, second = order[:2]
    lead = scores[first] - scores[second]
    return (
        f"The query gives key {names[first]} {two(weights[first])}, because its score, "
        f"{two(scores[first])}, is {two(lead)} above that of key {names[second]}: its weight is "
        f"e^{two(lead)}{_times(lead)} times as large."
    )


def _but_longer(
    names: Sequence[str],
    keys: Sequence[Sequence[float]],
    query: Sequence[float],
    order: Sequence[int],
) -> str:
    """A remark where a key points more in the direction of the query than the one that wins."""
    first = order[0]

    def along(j: int) -> float:
        return keys[j][0] * query[0] + keys[j][1] * query[1]

    def agrees(j: int) -> float:
        return along(j) / max(math.hypot(*keys[j]), 1e-12)

    nearest = max(order, key=agrees)
    if along(first) <= 0 or agrees(nearest) - agrees(first) < _ALIKE:
        return ""
    long, short = (two(math.hypot(*keys[j])) for j in (first, nearest))
    return (
        f" Key {names[nearest]} points more in the direction of the query, but {names[first]} is "
        f"longer: {long} against {short}."
    )


def _left_out(names: Sequence[str], masked: Sequence[int]) -> str:
    if not masked or len(masked) == len(names):
        return ""
    left = listed([names[j] for j in masked])
    if len(masked) == 1:
        return f" Key {left} is masked and gets 0."
    return f" Keys {left} are masked and get 0."


def _times(lead: float) -> str:
    if lead > math.log(1000):
        return ", or more than 1,000,"
    ratio = math.exp(lead)
    return f" = {fixed(ratio, 2 if ratio < 10 else 0)}"
