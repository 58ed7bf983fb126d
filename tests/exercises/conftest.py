"""What the tests of the checks share: one wrong solution, one verdict with its words."""

from collections.abc import Callable
from typing import Any

import pytest

from attnlab.exercises import Verdict


@pytest.fixture
def refuses() -> Callable[[Verdict, str], None]:
    """The verdict is not right, and its message has the words, whatever their case."""

    def refuse(verdict: Verdict, words: str) -> None:
        assert isinstance(verdict, Verdict)
        assert not verdict.right
        assert words.lower() in verdict.message.lower(), verdict.message

    return refuse


@pytest.fixture
def tells_apart() -> Callable[..., None]:
    """Wrong solutions {name: (words, solution)} get as many messages as there are words."""

    def tell(check: Callable[..., Verdict], wrong: dict[str, tuple[str, Any]]) -> None:
        messages = {words: check(solution).message for words, solution in wrong.values()}
        assert len(set(messages.values())) == len(messages)

    return tell
