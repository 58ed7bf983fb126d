"""The claims as tests, for mechanisms that somebody else has written.

    # test_mymix.py
    import mymix  # its page, which registers its card
    from attnlab.testing import claims

    TestMymix = claims("mymix")

``pytest test_mymix.py`` then asks of it what is asked of every mechanism of attnlab: that each form
equals ``naive`` in values and gradients, that nothing leaks from the future, that padding changes
nothing, that costs grow as the card says. The tests are those of ``attnlab.testing.mechanisms``;
cards of other roles are asked those of ``architecture``, ``objectives`` and ``compression``.

This room needs pytest, and nothing else of attnlab imports it: ``pip install pytest``.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.lazy import modules_of

__all__ = ["claims"]
__getattr__ = modules_of(__name__)

_OF_ROLES = {
    "attend": "mechanisms",
    "mix": "mechanisms",
    "feed": "architecture",
    "join": "architecture",
    "depth": "architecture",
    "objective": "objectives",
    "compress": "compression",
}
"""Role → the module of this room that has its claims."""

pytest.register_assert_rewrite(*{f"attnlab.testing.{name}" for name in _OF_ROLES.values()})


def claims(mechanism: str | Card) -> type:
    """The claims of one mechanism as a class of tests; give it a name that begins with Test.

    ``mechanism`` is a name of the catalogue, yours as soon as its card is registered, or a card.
    """
    card = catalog.card(mechanism) if isinstance(mechanism, str) else mechanism
    if not isinstance(card, Card):
        raise TypeError(f"claims takes the name of a mechanism or its card, got {mechanism!r}")
    if card.role not in _OF_ROLES:
        raise ValueError(
            f"{card.name} has the role {card.role!r}; there are claims for the roles "
            f"{', '.join(map(repr, _OF_ROLES))}"
        )
    if card not in tuple(catalog.cards()):
        raise ValueError(f"{card.name} is not in the catalogue; call attnlab.register(card) first")
    every = vars(importlib.import_module(f"attnlab.testing.{_OF_ROLES[card.role]}"))
    tests = {
        name: staticmethod(_of_one_card(test, card))
        for name, test in every.items()
        if name.startswith("test_")
    }
    return type(f"Test_{card.name}", (), tests)


def _of_one_card(test: Callable[..., None], card: Card) -> Callable[..., None]:
    """The test with the cases of this card alone; the generator is put back after it."""

    @functools.wraps(test)
    def of_one_card(*args: Any, **kwargs: Any) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            test(*args, **kwargs)

    marks = [_narrowed(mark, card) for mark in getattr(test, "pytestmark", ()) if mark.args]
    of_one_card.pytestmark = marks  # type: ignore[attr-defined]
    return of_one_card


def _narrowed(mark: pytest.Mark, card: Card) -> pytest.Mark:
    if mark.name != "parametrize" or "card" not in mark.args[0]:
        return mark
    names, cases = mark.args
    return pytest.mark.parametrize(names, cases.of(card), **mark.kwargs).mark
