"""Mechanisms of others: registered or installed, they are known wherever those of the shelf are."""

import dataclasses
import importlib.metadata
import sys
import types
from collections.abc import Iterator

import pytest
import sympy
import torch
from attnlab_widgets.card_maps import beside
from attnlab_widgets.wall_cards import described

import attnlab
from attnlab import catalog
from attnlab.core.card import Card
from attnlab.lens.side_by_side import layers
from attnlab.measure.costs import counted
from attnlab.measure.subject import subject
from attnlab.testing import claims, mechanisms

FULL = attnlab.card("full")
MINE = dataclasses.replace(FULL, name="mymix", title="Mine", aliases=("mine",))


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(catalog, "_OTHERS", {})
    monkeypatch.setattr(catalog, "_INSTALLED_ARE_IN", [])
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    for each in catalog._REMEMBERED:
        each.cache_clear()


def test_a_registered_card_is_known_everywhere() -> None:
    attnlab.cards()  # read before, and kept
    assert attnlab.register(MINE) is MINE
    assert attnlab.card("mine") is MINE
    assert attnlab.cards()[-1] is MINE
    assert MINE not in tuple(catalog.shelf())
    with pytest.raises(ValueError, match=r"did you mean 'mymix'"):
        attnlab.card("mymxi")
    layer = attnlab.build("mymix", dim=8, heads=2)
    assert layer(torch.randn(1, 3, 8)).shape == (1, 3, 8)
    assert attnlab.TinyTransformer(9, dim=8, heads=2, attention="mymix")
    assert counted(subject("mymix"), 64).flops == counted(subject("full"), 64).flops
    drawn = next(each for each in layers(8, 2) if each.card is MINE)
    assert described(drawn, [8], 8, 2)["page"] == ""
    assert "Mine" in beside(MINE).picture
    assert "Mine" in attnlab.cards()._repr_html_()


def test_a_card_is_replaced_where_that_is_asked_for() -> None:
    attnlab.register(MINE)
    attnlab.register(MINE)
    before = counted(subject("mymix"), 64).flops
    linear = dataclasses.replace(attnlab.card("linear"), name="mymix", aliases=())
    with pytest.raises(ValueError, match=r"'mymix' is taken by Mine .*replace=True puts"):
        attnlab.register(linear)
    attnlab.register(linear, replace=True)
    assert attnlab.card("mymix") is linear
    assert counted(subject("mymix"), 64).flops != before


@pytest.mark.parametrize(
    ("card", "error", "sentence"),
    [
        (dataclasses.replace(MINE, name="full"), ValueError, "'full' is taken by .*another name$"),
        (dataclasses.replace(MINE, aliases=("flash",)), ValueError, "'flash' is taken by"),
        (sys, TypeError, "register takes an attnlab.core.card.Card, got .*sys, a module"),
        ("mymix", TypeError, "register takes .*got .*mymix"),
        (Card, TypeError, "got .*Card, a module or class"),
    ],
)
def test_what_cannot_be_registered_is_refused(card, error, sentence) -> None:
    for replace in (False, True):
        with pytest.raises(error, match=sentence):
            attnlab.register(card, replace=replace)
    assert not catalog._OTHERS


def test_installed_packages_bring_their_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails is named, the others are there."""
    page = types.ModuleType("page_of_mymix")
    page.CARD = MINE
    monkeypatch.setitem(sys.modules, page.__name__, page)
    names = {"mymix": page.__name__, "broken": "not_there", "wrong": "sys:path", "again": "sys"}
    points = [importlib.metadata.EntryPoint(*each, catalog.GROUP) for each in names.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: points)
    with pytest.warns(UserWarning, match="left out of the catalogue") as warned:
        assert attnlab.card("mymix") is MINE
    said = [str(each.message) for each in warned]
    assert len(said) == 3
    assert "the mechanism 'broken' is left out" in said[0]
    assert "'not_there' raised ModuleNotFoundError: No module named 'not_there'" in said[0]
    assert attnlab.cards()[-1] is MINE


def test_the_claims_of_one_card_are_those_of_the_shelf() -> None:
    attnlab.register(MINE)
    tests = vars(claims("mymix"))
    shipped = {name: each for name, each in vars(mechanisms).items() if name.startswith("test_")}
    assert {name for name in tests if name.startswith("test_")} == set(shipped)
    for name, test in shipped.items():
        every, own = (
            next(mark.args[1] for mark in each.pytestmark if "card" in mark.args[0])
            for each in (test, tests[name].__func__)
        )
        assert len(own) == sum(case.values[0] is FULL for case in every), name
        assert all(case.values[0] is MINE for case in own)
    ran = tests["test_module_trains"].__func__
    state = torch.get_rng_state()
    ran(MINE, 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_claims_are_for_cards_of_the_catalogue_that_mix() -> None:
    with pytest.raises(ValueError, match=r"mymix is not in the catalogue; call attnlab.register"):
        claims(MINE)
    with pytest.raises(ValueError, match="rope has the role 'encode'"):
        claims("rope")
    with pytest.raises(TypeError, match="the name of a mechanism or its card"):
        claims(3)  # type: ignore[arg-type]


def test_a_loop_that_its_card_does_not_claim_is_told_what_to_claim() -> None:
    with pytest.raises(AssertionError, match=r"`launches` should say how, as \{'recurrent': n\}"):
        mechanisms._check_launches("recurrent", sympy.Integer(1), (16, 32, 64), (165, 325, 645))
    mechanisms._check_launches("recurrent", sympy.Symbol("n"), (16, 32, 64), (165, 325, 645))


@pytest.mark.parametrize(
    ("chunk", "largest", "lengths"),
    [(32, 0, (31, 127)), (64, 0, (127, 509)), (100, 100, (127, 509))],
)
def test_what_grows_between_chunks_is_no_loop_over_tokens(
    chunk: int, largest: int, lengths: tuple[int, ...]
) -> None:
    """Its first tokens, which have no chunk before them, are alike."""

    def called(at: tuple[int, ...]) -> list[int]:
        return [n + 10 * (n // chunk) ** 2 for n in at]

    n = sympy.Symbol("n")
    shown, counted = mechanisms._of_a_loop(lengths, called, largest)
    with pytest.raises(AssertionError, match="its card claims that they grow as n"):
        mechanisms._check_launches("recurrent", n, shown, counted)
    shown, counted = mechanisms._of_a_loop(lengths, lambda at: [3 * n + 2 for n in at], largest=5)
    mechanisms._check_launches("recurrent", n, shown, counted)
    assert shown == mechanisms.STEPS[0]


@pytest.mark.timeout(60)
def test_lengths_with_few_pairs_of_tiles() -> None:
    """A claim whose constant is large leaves a tile or more of the shortest length."""
    n = sympy.Symbol("n")
    assert mechanisms._few_pairs(n**2 / 16**2, (512, 1024), 16) == (128, 256)
    assert mechanisms._few_pairs(301 + n, (512, 1024), 16) == (16, 32)
