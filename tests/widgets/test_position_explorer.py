"""The position explorer in Python: scores by distance, what may be set, the still picture."""

import math
import re

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.position_explorer import PositionExplorer, example_scores

from attnlab.mechanisms.positions import rope
from attnlab.mechanisms.positions.alibi import slopes
from attnlab.mechanisms.positions.rope import RoPEOptions
from tests.widgets.stored import assert_fresh, write


def maps(n: int = 7) -> dict[str, np.ndarray]:
    """Two schemes with 3 and 1 heads; later keys have no score."""
    i = np.arange(n)
    distance = (i[:, None] - i).astype(float)
    past = np.where(distance >= 0, distance, np.nan)
    return {"falling": -np.array([1.0, 2.0, 0.5])[:, None, None] * past, "even": past * 0 + i}


def test_a_curve_is_the_mean_of_a_diagonal() -> None:
    widget = PositionExplorer(maps())
    assert widget.curve("falling", 1) == pytest.approx(-2.0 * np.arange(7))
    # Keys 0 … 6 − t have the scores 0 … 6 − t.
    assert widget.curve("even") == pytest.approx((6 - np.arange(7)) / 2)


def test_the_page_gets_every_number() -> None:
    widget = PositionExplorer(maps())
    sent = np.frombuffer(widget._data, "<f4")
    for one in widget._schemes:
        found = sent[one["at"] :][: one["heads"] * 49].reshape(-1, 7, 7)
        wanted = maps()[one["name"]].reshape(-1, 7, 7)
        assert np.allclose(found, wanted, equal_nan=True)
    assert len(sent) == 4 * 49


def test_example_scores_are_those_of_the_equations() -> None:
    found = example_scores(11, heads=2, head_dim=8)
    i = np.arange(11)
    distance = i[:, None] - i
    later = distance < 0
    for name, one in found.items():
        assert np.isnan(one[:, later]).all(), name
        assert np.allclose(one[:, i, i], 0), name
    falls = -slopes(2).numpy()[:, None] * distance[~later]
    assert np.allclose(found["alibi"][:, ~later], falls)
    assert np.allclose(found["none"][:, ~later], 0)
    widget = PositionExplorer({"rope": found["rope"]})
    assert [widget.curve("rope", head).argmax() for head in (0, 1)] == [0, 2]


def test_the_score_by_hand_is_that_of_the_library() -> None:
    widget = PositionExplorer(head_dim=6, base=50.0)
    widget.phases, widget.query, widget.key = [0.3, -1.1, 2.0, 0.4, -0.7, 0.9], 17, 5
    angles = torch.tensor(widget.phases).double().view(3, 2)
    q, k = (torch.cat((a.cos(), a.sin())).view(1, 1, 1, 6) for a in angles.mT)
    options = RoPEOptions(base=50.0)
    q, _ = rope.naive(q, q, torch.tensor([17]), options=options)
    k, _ = rope.naive(k, k, torch.tensor([5]), options=options)
    assert widget.score == pytest.approx((q * k).sum().item() / math.sqrt(6))
    widget.query, widget.key = 29, 17
    assert widget.score == pytest.approx((q * k).sum().item() / math.sqrt(6))


def test_what_is_chosen_has_to_exist() -> None:
    widget = PositionExplorer(maps())
    widget.head = 2
    widget.scheme = "even"
    assert widget.head == 0, "it has one head only"
    widget.shown = ["even", "falling"]
    assert widget.shown == ["falling", "even"], "in the order in which they were given"
    for name, value, said in (
        ("head", 1, "`head` should be from 0 to 0, got 1"),
        ("query", 7, "`query` should be from 0 to 6, got 7"),
        ("key", -1, "`key` should be from 0 to 6, got -1"),
        ("scheme", "ev", "did you mean 'even'"),
        ("shown", ["alibi"], "no scheme 'alibi'"),
        ("phases", [0.0], "two finite angles for each of the 4 pairs, 8 in all, got 1"),
        ("base", 1.0, "`base` should be above 1, got 1.0"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(said)):
            setattr(widget, name, value)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, "should name at least one scheme"),
        ({"a": np.zeros((2, 3, 4))}, "'a' should be (h, n, n) or (n, n), got (2, 3, 4)"),
        ({"a": np.zeros((129, 129))}, "between 2 and 128 positions can be drawn, 'a' has 129"),
        ({"a": np.zeros((3, 3)), "b": np.zeros((5, 5))}, "the same number of positions n"),
        ({"a": np.full((3, 3), np.nan)}, "needs a finite score for every key of the past"),
        ({str(i): np.zeros((3, 3)) for i in range(7)}, "at most 6 schemes"),
        ({"a": np.zeros((17, 128, 128))}, "the maps hold 278,528 numbers"),
    ],
)
def test_scores_that_cannot_be_drawn_are_refused(scores, said) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        PositionExplorer(scores)


def test_a_head_of_odd_or_large_width_is_refused() -> None:
    for width in (3, 10, True):
        with pytest.raises(ValueError, match="head_dim should be 2, 4, 6 or 8"):
            PositionExplorer(head_dim=width)


def test_its_picture_has_the_chosen_curves() -> None:
    widget = PositionExplorer(maps(), shown=["falling"])
    picture = widget.still().svg(repr(widget))
    assert "<svg" in picture
    assert "falling: highest at distance 0, -6.00 at distance 6." in picture
    assert ">falling</text>" in picture
    assert ">even</text>" not in picture
    assert repr(widget).startswith("PositionExplorer: falling: highest at distance 0")


def test_a_scheme_has_one_colour_whatever_stands_beside_it() -> None:
    flat = np.zeros((3, 3))
    for names in (("rope", "mine", "none"), ("mine", "learned", "rope")):
        looks = {
            one["name"]: one["look"]
            for one in PositionExplorer(dict.fromkeys(names, flat))._schemes
        }
        assert looks["rope"] == 2
        assert len(set(looks.values())) == 3


def test_its_picture_has_what_a_lesson_says_of_it() -> None:
    widget = PositionExplorer(maps(), scheme="falling")
    picture = widget.still().svg(repr(widget))
    assert "Every pair: falling" in picture
    assert "key ◆ at 6" in picture
    assert "θ = 0.001 · Δ = 0°" in picture


# ---- what the page's own arithmetic must equal


def cases() -> dict[str, object]:
    """Of schemes whose scores are whole numbers and halves, so that they are exact in bytes."""
    phases = [0.3, -1.1, 2.0, 0.4, -0.7, 0.9]
    pairs = []
    for query, key in ((0, 0), (5, 5), (17, 5), (3, 11)):
        widget = PositionExplorer(head_dim=6, base=50.0)
        widget.phases, widget.query, widget.key = phases, query, key
        pairs.append({"query": query, "key": key, "score": widget.score})
    widget = PositionExplorer(maps())
    curves = [widget.curve(name, head).tolist() for name, head in (("falling", 2), ("even", 0))]
    return {"phases": phases, "base": 50.0, "pairs": pairs, "curves": curves}


def test_what_the_page_is_compared_with_is_fresh() -> None:
    assert_fresh("positions.json", cases())


if __name__ == "__main__":
    write("positions.json", cases())
