"""Cards: costs from one place, and refusals."""

import dataclasses

import pytest
import sympy
from torch import nn

import attnlab
from attnlab.core.card import Beside, Card, Paper, letters
from attnlab.core.typeset import in_plain_text

n, d, h = letters("n d h")


def card(**changes: object) -> Card:
    plain = Card(
        name="plain",
        title="Plain <b>bold</b>",
        family="dense",
        role="mix",
        paper=Paper("Somebody", "Something", "Somewhere", 2020, "2001.00001"),
        forms={"naive": max},
        causal="never",
        time=3 * n**2 * d + 7 * n * d**2,
        memory={"naive": n**2 * h},
        build=nn.Identity,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def test_order_is_the_leading_term_without_constants() -> None:
    assert card().order("time") == d * n**2
    assert card().order_latex("memory") == r"O(h n^{2})"
    assert card(time=2 * n**1.5 + n).order("time") == n**1.5
    transform = 15 * n * d * sympy.log(2 * n, 2) + 4 * n * d * h + n * sympy.log(d)
    assert card(time=transform).order("time") == n * d * sympy.log(n)


def test_plain_text() -> None:
    assert card().order_text("time") == "O(d n²)"
    assert in_plain_text(n ** sympy.Rational(3, 2) * sympy.sqrt(d)) == "√d n^(3/2)"
    assert in_plain_text(h * n**12 * (d + 1) / 3) == "h n¹² (d + 1)/3"


def test_launches_are_as_many_at_any_length_unless_said() -> None:
    forms = {"naive": max, "fast": min}
    constant = card(forms=forms, memory=n)
    assert constant.cost("launches", "fast") == 1
    assert dict(constant.rows())["kernels launched"] == "as many at any length"
    grow = dataclasses.replace(constant, launches={"fast": n / 64 + 3})
    assert grow.cost("launches", "naive") == 1
    words = "naive: as many at any length; fast: grow as n"
    assert dict(grow.rows())["kernels launched"] == words
    with pytest.raises(ValueError, match="fsat"):
        card(forms=forms, memory=n, launches={"fsat": n})


def test_forms_that_are_kernels_stand_after_the_others() -> None:
    made = card(forms={"naive": max}, kernels={"fast": min}, memory=n, launches={"fast": n})
    assert list(made.every_form) == ["naive", "fast"]
    assert dict(made.rows())["forms"] == "naive; on a GPU fast"
    assert "fast: grow as n" in dict(made.rows())["kernels launched"]
    assert made.cost("memory", "fast") == n
    assert dict(card(forms={"naive": max}, memory=n).rows())["forms"] == "naive"


@pytest.mark.parametrize(
    ("authors", "short"),
    [("Shaw", "Shaw"), ("Shaw, Ba", "Shaw and Ba"), ("Shaw, Ba, Hinton", "Shaw et al.")],
)
def test_a_paper_as_a_text_cites_it(authors: str, short: str) -> None:
    assert Paper(authors, "Something", "Somewhere", 2020).short == f"{short}, 2020"


def test_full_attention_s_cost() -> None:
    full = attnlab.card("full")
    assert str(full.order("time")) == "h*n**2*(d + e)"
    assert str(attnlab.card("flash").order("memory", "tiled")) == "e*h*n"


def test_notebook_table_is_escaped_and_whole() -> None:
    html = card()._repr_html_()
    assert "Plain &lt;b&gt;bold" in html
    assert "arXiv:2001.00001" in html


def test_beside_a_card_stands_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "attnlab.core.card.shown_beside"
    monkeypatch.setattr(shown, lambda _: Beside())
    assert "see also" not in card()._repr_html_()
    monkeypatch.setattr(shown, lambda c: Beside("<img>", "its map", f"<a>{c.name}</a>"))
    html = card()._repr_html_()
    assert "<img><br>its map" in html
    assert f"<a>{card().name}</a>" in html


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"role": "look"}, "role should be one of"),
        ({"causal": True}, "causal should be one of"),
        ({"forms": {"fast": max}}, "the first form is `naive`"),
    ],
)
def test_cards_refuse_nonsense(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        card(**changes)
