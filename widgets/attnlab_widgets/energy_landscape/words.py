"""Where a query is led in the energy landscape, in a sentence; ``landscape.js`` says the
same on the page."""

import math
from collections.abc import Sequence

from attnlab_widgets.words import listed, two

NEARLY_ALL = 0.9
"""Of the weight: a pattern that has as much is retrieved alone."""
RESTS = 0.005
"""A step that moves the state by less shows as 0.00."""

Points = Sequence[Sequence[float]]


def announcement(
    names: Sequence[str], path: Points, energies: Sequence[float], weights: Sequence[float]
) -> str:
    """A sentence of the states of a retrieval (the query first), their energies, and the weights
    of the patterns at the last."""
    steps = len(path) - 1
    times = "One step leads" if steps == 1 else f"{steps} steps lead"
    return (
        f"{times} from {_place(path[0])}, where the energy is {two(energies[0])}, to "
        f"{_place(path[-1])}, where it is {two(energies[-1])}: {_found(names, weights)}"
        f"{_moving(math.dist(*path[-2:]))}"
    )


def heaviest(weights: Sequence[float]) -> list[int]:
    """The fewest patterns that have nearly all of the weight together, the heaviest first."""
    order = sorted(range(len(weights)), key=lambda j: -weights[j])
    total, found = 0.0, []
    for j in order:
        found.append(j)
        total += weights[j]
        if total > NEARLY_ALL - 1e-9:
            break
    return found


def _found(names: Sequence[str], weights: Sequence[float]) -> str:
    most = heaviest(weights)
    if len(most) == 1:
        return f"pattern {names[most[0]]}, with {two(weights[most[0]])} of the weight."
    if len(most) == len(weights):
        return f"a mean of all {len(weights)} patterns, of which {names[most[0]]} has most, " + (
            f"{two(weights[most[0]])} of the weight."
        )
    together, among = two(sum(weights[j] for j in most)), listed([names[j] for j in sorted(most)])
    return f"a mean of {among}, which have {together} of the weight."


def _moving(by: float) -> str:
    return "" if by < RESTS else f" The last step still moved the state by {two(by)}."


def _place(point: Sequence[float]) -> str:
    return f"({two(point[0])}, {two(point[1])})"
