"""Claims are tests: what the cards of the shelf say, by the tests that ship as attnlab.testing."""

import pytest
import torch

from attnlab import catalog

pytest.register_assert_rewrite("attnlab.testing.mechanisms")

from attnlab.testing.mechanisms import *  # noqa: E402, F403
from attnlab.testing.mechanisms import (  # noqa: E402
    CARDS,
    CAUSAL,
    DIM,
    FAST,
    lines_executed,
    module,
    of_its_own,
    test_module_moves_to_the_gpu,
)

pytest.mark.gpu(test_module_moves_to_the_gpu)  # a mark of this repository


def test_there_are_cards() -> None:
    assert {"full", "multi_query"} <= {card.name for card in CARDS}
    assert FAST
    assert CAUSAL


def test_a_variant_that_runs_code_of_its_own_is_told_by_its_lines() -> None:
    """A longer window runs the same code, a dilated one other code."""
    card, x = catalog.card("longformer"), torch.randn(2, 7, DIM, dtype=torch.float64)
    default, longer, dilated = (module(card, variant) for variant in range(3))
    for layer in (default, longer, dilated):
        layer(x)  # what is made once is made before the lines are noted
    lines = lines_executed(default, x)
    assert lines_executed(longer, x) <= lines
    assert lines_executed(dilated, x) - lines
    own = [of_its_own(card, "naive", variant) for variant in range(len(card.variants) + 1)]
    assert own == [True, True, True, False]  # the second window is nearly as long as the text
