"""Claims are tests: what the cards of the shelf say, by the tests that ship as attnlab.testing."""

import pytest

pytest.register_assert_rewrite("attnlab.testing.mechanisms")

from attnlab.testing.mechanisms import *  # noqa: E402, F403
from attnlab.testing.mechanisms import (  # noqa: E402
    CARDS,
    CAUSAL,
    FAST,
    test_module_moves_to_the_gpu,
)

pytest.mark.gpu(test_module_moves_to_the_gpu)  # a mark of this repository


def test_there_are_cards() -> None:
    assert {"full", "multi_query"} <= {card.name for card in CARDS}
    assert FAST
    assert CAUSAL
