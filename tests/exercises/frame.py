"""The tests that the checks of most exercises share, written once.

RIGHT = [(check_pool, by_loops)]                      # right solutions, computed differently
TABLES = [(check_pool, {"mean": ("words", wrong)})]   # wrong ones, and words of the message

TestAnswers = answers_to(RIGHT, TABLES)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from attnlab.exercises import Verdict

Check = Callable[..., Verdict]
Table = Mapping[str, tuple[str, Any]]


def answers_to(right: Iterable[tuple[Check, Any]], tables: Iterable[tuple[Check, Table]]) -> type:
    """A class of tests, for pytest to collect."""
    tables = list(tables)
    wrong = [(check, *pair) for check, table in tables for pair in table.values()]

    @pytest.mark.parametrize(("check", "solution"), list(right))
    def right_is_right(self: object, check: Check, solution: Any) -> None:
        verdict = check(solution)
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

    tests = {
        "test_written_differently_is_right": right_is_right,
        "test_mistakes_by_name": wrong_is_named,
        "test_messages_differ": messages_differ,
    }
    return type("Answers", (), tests)


def named(mistakes: Iterable[tuple[str, Any]]) -> Table:
    """Mistakes that the library lists, (sentence, solution), as a table."""
    return {f"{place}": mistake for place, mistake in enumerate(mistakes)}


def numbers_of(mistakes: Mapping[float, str]) -> Table:
    """Wrong numbers that the library lists, as a table: messages hold the sentences."""
    return {sentence: (sentence, number) for number, sentence in mistakes.items()}
