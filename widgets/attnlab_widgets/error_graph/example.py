"""Six numbers, of which the third best sum is wrong, and what follows from it."""

from collections.abc import Sequence

from attnlab.structures.computation import Computation, spaced_sum
from attnlab_widgets.error_graph import ErrorGraph

NUMBERS = (3, -1, 5, 2, -4, 1)


def example() -> ErrorGraph:
    made = spaced_sum(NUMBERS)
    stated: dict[str, int | None] = {name: made.values[name] for name in made.computed}
    stated |= {"best 2": 7, "best 1": 7, "best 0": 10, "chosen 2": 2, "chosen 3": 1}
    return ErrorGraph(made, stated, asked="3 -1 5 2 -4 1 =")


def hostile(words: Sequence[str]) -> ErrorGraph:
    made = Computation()
    names = [made.given(f"{at}{word}", at) for at, word in enumerate(words)]
    made.step(" and ".join(words), lambda *values: sum(values), *names)
    return ErrorGraph(made, {made.computed[0]: None}, asked=" ".join(words))
