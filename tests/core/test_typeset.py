"""Costs as HTML, and what their letters stand for."""

from dataclasses import dataclass

import pytest
import sympy

from attnlab.core.card import letters
from attnlab.core.options import Options
from attnlab.core.typeset import house_letters, letters_in, of_option, symbol, typeset

n, d, e, dim, l_m = letters("n d e dim l_m")


@pytest.mark.parametrize(
    ("expression", "html"),
    [
        (n**2 * (d + e), "<i>n</i><sup>2</sup> (<i>d</i> + <i>e</i>)"),
        (dim * n, "dim <i>n</i>"),
        (n * l_m / 2, "<i>l</i><sub>m</sub> <i>n</i>/2"),
        (sympy.sqrt(n), "√<i>n</i>"),
        (sympy.sqrt(n + 1), "√(<i>n</i> + 1)"),
        (n ** (d + 1), "<i>n</i><sup><i>d</i> + 1</sup>"),
        (n * sympy.log(n), "<i>n</i> log(<i>n</i>)"),
        (sympy.log(n) ** 2, "log(<i>n</i>)<sup>2</sup>"),
        (sympy.Integer(0), "0"),
    ],
)
def test_expressions(expression: sympy.Expr, html: str) -> None:
    assert typeset(expression).replace("\u202f", " ") == html


def test_words_stay_upright() -> None:
    assert symbol("max_len") == "max_len"
    assert symbol("w") == "<i>w</i>"


def test_the_letters_of_the_house() -> None:
    found = house_letters()
    assert found["h"] == "heads"
    assert found["dim"] == "width of the model"
    assert found["d"] == "width of a head: its queries and keys"
    assert {"n", "m", "d", "e", "h", "dim"} <= set(found)
    assert letters_in([n * dim, d * l_m]) == ["n", "d", "dim", "l_m"]


@dataclass(frozen=True, kw_only=True)
class Window(Options):
    """A window.

    ``window``    half of it
                  to each side.
    ``dilation``  the ``step`` between keys.
    """

    window: int = 2
    dilation: int = 1
    other: int = 0


def test_the_meaning_of_an_option() -> None:
    assert of_option(Window, "window") == "window: half of it to each side"
    assert of_option(Window, "dilation") == "dilation: the step between keys"
    assert of_option(Window, "other") == "the option other"
