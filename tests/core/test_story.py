"""Stories: what a card takes from the docstring of its page."""

import json
import os
import subprocess
import sys

import pytest

import attnlab
from attnlab.core.card import Card, Paper, letters
from attnlab.core.story import Story, story

TOLD = """RetNet: retention. Linear attention whose weights fade.

$$o = x$$

Departures.
- padding is skipped; the code
  keeps it. This explains it.
- no dropout

Gives up. The past fades
at a fixed rate.

Sun, Dong. Retentive Network: A Successor? Findings of ACL 2023, arXiv:2307.08621, section 2. More:
Else et al. Other. ICML 2020.
"""


def test_a_story_is_read() -> None:
    told = Story(TOLD)
    assert (told.title, told.summary) == (
        "RetNet: retention",
        "Linear attention whose weights fade.",
    )
    assert told.departures == ("padding is skipped; the code keeps it", "no dropout")
    assert told.gives_up == "The past fades at a fixed rate."
    title = "Retentive Network: A Successor?"
    assert told.paper == Paper("Sun, Dong", title, "Findings of ACL", 2023, "2307.08621")
    assert told.rest.startswith("$$o = x$$")
    assert told.faults() == []


@pytest.mark.parametrize(
    ("citation", "paper"),
    [
        ("Cho, Ba. Q.E.D. 2020.", ("Cho, Ba", "Q.E.D", "arXiv", 2020)),
        ("Cho. Why? Neural Computation 9(8), 1997.", ("Cho", "Why?", "Neural Computation", 1997)),
        ("Peng et al. RWKV: An RNN. EMNLP 2023.", ("Peng et al.", "RWKV: An RNN", "EMNLP", 2023)),
        ("Cho, Ba. A. PLoS ONE 16(6), 2021, arXiv:1.2.", ("Cho, Ba", "A", "PLoS ONE", 2021)),
    ],
)
def test_citations(citation: str, paper: tuple[str, ...]) -> None:
    assert Story(citation).paper == Paper(*paper)  # type: ignore[arg-type]


@pytest.mark.parametrize("card", attnlab.cards(), ids=lambda card: card.name)
def test_each_story_of_the_shelves_is_read(card: Card) -> None:
    assert card.story
    assert Story(card.story).faults() == []


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("RetNet: retention. Linear", "Linear", "should begin with its title"),
        ("2023, arXiv:2307.08621", "last year", "last paragraph of the story should be a citation"),
        ("Departures.\n", "Departures. One: ", "below the line 'Departures.' a list should follow"),
        ("Departures.\n", "Departures:\n", "below the line 'Departures.' a list should follow"),
        ("Gives up. ", "Gives up: ", "'Gives up.' and a sentence should be one paragraph"),
    ],
)
def test_what_is_not_read_is_said(old: str, new: str, sentence: str) -> None:
    (fault,) = Story(TOLD.replace(old, new)).faults()
    assert sentence in fault


def card(*story: str | None, **given: object) -> Card:
    known = {"forms": {"naive": max}, "causal": "never", "time": letters("n")[0], "build": dict}
    known |= {"name": "plain", "family": "dense", "role": "mix", "memory": letters("n")[0]}
    return Card(*story, **(known | given))  # type: ignore[arg-type]


def test_what_is_given_comes_before_what_is_told() -> None:
    paper = Paper("Cho", "A", "ICML", 2020)
    given = card(TOLD, title="Plain", paper=paper, departures=("none",), gives_up="Nothing.")
    assert (given.title, given.paper) == ("Plain", paper)
    assert (given.departures, given.gives_up) == (("none",), "Nothing.")
    assert card(title="Plain", paper=paper).departures == ()


def test_a_card_without_a_title_or_a_paper_is_refused() -> None:
    with pytest.raises(ValueError, match=r"card 'plain': the last paragraph .*; or give title="):
        card("Plain: a thing.\n\nCho, Ba.")
    with pytest.raises(ValueError, match="should begin with its title"):
        card(title="", paper=Paper("Cho", "A", "ICML", 2020))


def test_a_module_without_a_docstring_has_no_story() -> None:
    exec(compile("told = story(None)", "made", "exec"), made := {"story": story, "__file__": "?"})
    assert made["told"].title == ""


def test_cards_are_the_same_where_docstrings_are_left_out() -> None:
    """PyTorch keeps its own: compiling it anew takes long."""
    program = """
import importlib.machinery, json, torch

def without_docstrings(loader, name):
    path = loader.get_filename(name)
    return compile(loader.get_data(path), path, "exec", dont_inherit=True, optimize=2)

in_full = importlib.machinery.SourceFileLoader.get_code
importlib.machinery.SourceFileLoader.get_code = lambda loader, name: (
    without_docstrings if name.startswith("attnlab") else in_full
)(loader, name)
import attnlab
assert attnlab.__doc__ is None
print(json.dumps([card.rows() for card in attnlab.cards()]))
"""
    run = [sys.executable, "-c", program]
    told = subprocess.run(run, capture_output=True, text=True, check=True, env={**os.environ})
    assert json.loads(told.stdout) == [[list(row) for row in c.rows()] for c in attnlab.cards()]


def test_departures_are_plain_text() -> None:
    every = [departure for card in attnlab.cards() for departure in card.departures]
    assert every
    assert not any("`" in departure for departure in every)


def test_a_citation_has_no_two_stops() -> None:
    paper = Story("A: b.\n\nPeng et al. RWKV-7. 2025, arXiv:2503.14456.").paper
    assert str(paper) == "Peng et al. RWKV-7. arXiv, 2025, arXiv:2503.14456."
