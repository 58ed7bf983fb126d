"""The tests that the exercises of most lessons share, written once.

RIGHT = [(check_pool, by_loops)]                      # right solutions, computed differently
TABLES = [(check_pool, {"mean": ("words", wrong)})]   # wrong ones, and words of the message

TestAnswers = answers_to(RIGHT, TABLES)

The mistakes that an exercise lists itself are tried in ``test_every_exercise``, which also asks
that each exercise has been given a right solution here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from attnlab.exercises import Verdict

Check = Callable[..., Verdict]
Table = Mapping[str, tuple[str, Any]]

SOLVED: set[Check] = set()  # what some page has a right solution of


def is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def each(change: Callable[[Any], Any], found: Any) -> Any:
    """One result, or each of several."""
    return tuple(map(change, found)) if isinstance(found, tuple) else change(found)


def single(x: Any) -> Any:
    return x.float() if is_real(x) else x


def in_float32(solution: Any) -> Any:
    """The solution in float32, from its arguments on where it allows that."""
    if not callable(solution):
        return np.float32(solution) if isinstance(solution, float) else np.int32(solution)

    def found(*given):
        try:
            return solution(*map(single, given))
        except RuntimeError:  # it has float64 numbers of its own
            return each(single, solution(*given))

    return found


def in_numpy(solution: Any) -> Any:
    """The solution's results as NumPy arrays, or as numbers of Python where they are numbers."""

    def plain(y: Any) -> Any:
        return (y.detach().numpy() if y.ndim else y.item()) if isinstance(y, Tensor) else y

    if not callable(solution):
        return np.float64(solution)
    return lambda *given: each(plain, solution(*given))


STYLES: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda solution: solution,
    "float32": in_float32,
    "NumPy": in_numpy,
}


def answers_to(
    right: Iterable[tuple[Check, Any]], tables: Iterable[tuple[Check, Table]] = ()
) -> type:
    """A class of tests, for pytest to collect."""
    right, tables = list(right), list(tables)
    SOLVED.update(check for check, _ in right)
    wrong = [(check, *pair) for check, table in tables for pair in table.values()]

    @pytest.mark.parametrize("style", STYLES)
    @pytest.mark.parametrize(("check", "solution"), right)
    def right_is_right(self: object, check: Check, solution: Any, style: str) -> None:
        verdict = check(STYLES[style](solution))
        assert verdict.right, verdict.message

    @pytest.mark.parametrize(("check", "words", "solution"), wrong, ids=[w[1] for w in wrong])
    def wrong_is_named(
        self: object, check: Check, words: str, solution: Any, refuses: Callable[..., None]
    ) -> None:
        refuses(check(solution), words)

    @pytest.mark.parametrize(("check", "table"), tables)
    def messages_differ(
        self: object, check: Check, table: Table, tells_apart: Callable[..., None]
    ) -> None:
        tells_apart(check, table)

    tests = {"test_right_is_right_in_every_style": right_is_right}
    if wrong:
        tests |= {"test_mistakes_by_name": wrong_is_named, "test_messages_differ": messages_differ}
    return type("Answers", (), tests)


def named(mistakes: Iterable[tuple[str, Any]]) -> Table:
    """Mistakes that the library lists, (sentence, solution), as a table."""
    return {f"{place}": mistake for place, mistake in enumerate(mistakes)}
