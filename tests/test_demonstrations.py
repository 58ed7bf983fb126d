"""The demonstrations on cards, by the tests that ship, and which pages must have one."""

import pytest

pytest.register_assert_rewrite("attnlab.testing.demonstrations")

from attnlab_widgets.wall_cards import lessons  # noqa: E402

from attnlab import catalog  # noqa: E402
from attnlab.core.card import Card  # noqa: E402
from attnlab.testing.demonstrations import *  # noqa: E402, F403

PARTS = [card for name in catalog.SHELVES[1:] for card in catalog.shelf(name)]


@pytest.mark.parametrize("card", PARTS, ids=lambda card: card.name)
def test_a_page_of_the_other_shelves_has_a_lesson_or_a_demonstration(card: Card) -> None:
    said = "CARD needs demo=: a few lines with >>> and what they print, or a lesson that builds it"
    assert card.demo or lessons(card), f"{card.name}: {said}"
