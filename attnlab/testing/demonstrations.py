"""The demonstrations of cards, run: they print what the card says, in at most ten seconds."""

import doctest
import importlib
import time

import pytest
import torch

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.testing.mechanisms import Cases, named

SECONDS, LINES = 10, 14

DEMONSTRATED = Cases(lambda card: [named(card)] if card.demo else [], catalog.cards())


@pytest.mark.parametrize("card", DEMONSTRATED)
def test_a_demonstration_prints_what_it_says(card: Card) -> None:
    found = doctest.DocTestParser().get_doctest(
        card.demo,
        {"attnlab": importlib.import_module("attnlab"), "torch": torch},
        card.name,
        None,
        None,
    )
    assert found.examples, "a demonstration has lines that begin with >>>"
    assert any(example.want for example in found.examples), "a demonstration prints something"
    said: list[str] = []
    torch.manual_seed(0)
    began = time.perf_counter()
    doctest.DocTestRunner(verbose=False).run(found, out=said.append)
    assert not said, "".join(said)
    assert time.perf_counter() - began < SECONDS


@pytest.mark.parametrize("card", DEMONSTRATED)
def test_a_demonstration_is_short_enough_to_be_read(card: Card) -> None:
    lines = card.demo.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= 96
