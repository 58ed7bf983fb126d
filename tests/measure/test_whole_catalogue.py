"""The topics that ask every mechanism of the catalogue: forms, growth and decoding."""

import math

import pytest

import attnlab
from attnlab.measure.benchmarks import decoding, forms, growth

MIXING = {card.name: card for card in attnlab.cards() if card.mixes}
SOME = ("linear", "retention", "s4d", "longformer", "tree")


def of(figure: str) -> str:
    return figure.partition(":")[0]


@pytest.mark.parametrize("topic", [decoding, forms, growth])
def test_figures_are_distinct_and_of_all_mechanisms(topic) -> None:
    names = topic.figures(quick=True)
    assert len(set(names)) == len(names)
    asked = {of(name) for name in names}
    if topic is growth:
        assert asked == set(MIXING)
    if topic is forms:
        assert asked == {name for name, card in MIXING.items() if len(card.forms) > 1}
    if topic is decoding:
        assert {"full", "linear", "gru", "s4d", "retention"} <= asked < set(MIXING)


@pytest.mark.parametrize("topic", [decoding, forms, growth])
@pytest.mark.parametrize("name", SOME)
def test_quick_rows(topic, name: str) -> None:
    for figure in topic.figures(quick=True):
        if of(figure) == name:
            row = topic.row(figure, quick=True, threads=1)
            assert row.figure == figure
            assert math.isfinite(row.measured)


def test_a_state_of_constant_size_and_one_that_grows() -> None:
    def grown(name: str) -> float:
        figure = f"{name}: bytes of the state after 64 tokens / after 32"
        return decoding.row(figure, quick=True, threads=1).measured

    assert grown("s4d") == 1
    assert 1.5 < grown("full") <= 2


def test_exponents_are_those_of_the_claims() -> None:
    def slope(name: str) -> float:
        figure = f"{name}: exponent of FLOPs, n = 1,024 … 4,096"
        return growth.row(figure, quick=False, threads=1).measured

    assert slope("s4d") < 1.1
    assert slope("full") > 1.5
