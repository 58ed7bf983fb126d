"""Equations as MathML: what a page is sent without a network."""

import importlib
import re

import pytest

import attnlab
from attnlab.catalog import pages
from attnlab.figures.mathml import tree


def test_fractions_roots_and_scripts() -> None:
    assert tree(r"\frac{a}{\sqrt d}") == [
        "math", {"display": "block"},
        ["mfrac", ["mi", "a"], ["msqrt", ["mi", "d"]]],
    ]  # fmt: skip
    assert tree("x_i^2")[2] == ["msubsup", ["mi", "x"], ["mi", "i"], ["mn", "2"]]  # type: ignore[index]
    assert tree("x'")[2] == ["msup", ["mi", "x"], ["mo", "′"]]  # type: ignore[index]


def test_large_signs_take_their_limits_below() -> None:
    total = tree(r"\sum_{j \le i} v_j")
    assert total is not None
    assert total[2][0] == "munder"
    assert total[2][2] == ["mrow", ["mi", "j"], ["mo", {"stretchy": "false"}, "≤"], ["mi", "i"]]


def test_words_keep_their_spaces() -> None:
    assert tree(r"x \text{ in block }g")[3] == ["mtext", " in block "]  # type: ignore[index]
    assert tree(r"\mathrm{softmax}")[2] == ["mi", {"mathvariant": "normal"}, "softmax"]  # type: ignore[index]


@pytest.mark.parametrize("latex", [r"\begin{cases} a \end{cases}", r"\unheard x", r"\frac{a"])
def test_what_is_not_known_is_none(latex: str) -> None:
    assert tree(latex) is None


@pytest.mark.parametrize("card", [c for c in attnlab.cards() if c.mixes], ids=lambda c: c.name)
def test_the_first_equation_of_every_mixing_page_is_read(card: attnlab.core.card.Card) -> None:
    story = importlib.import_module(pages()[card.name]).__doc__ or ""
    found = re.search(r"\$\$(.+?)\$\$", story, re.DOTALL)
    assert found is not None
    assert tree(found[1]) is not None
