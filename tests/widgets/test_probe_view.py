"""ProbeView: what it says of planted scores, in which order, and what it refuses."""

import re
from typing import Any

import pytest
import torch
import traitlets
from attnlab_widgets.probe_view import ProbeView
from attnlab_widgets.probe_view.example import example

from attnlab.lens.edge_probes import Cumulative, EdgeProbed
from attnlab.lens.known_where import Known

NONE = torch.empty(0, dtype=torch.int64)


def curve(*right: float, shares: tuple[float, ...] = ()) -> Cumulative:
    mix = torch.tensor(shares or (1 / len(right),) * len(right), dtype=torch.float64)
    scores = torch.tensor(right, dtype=torch.float64)
    return Cumulative(scores, NONE, EdgeProbed(right[-1], NONE, mix))


def late(by: float = 0.0) -> Known:
    """Layer 2 holds the answer; the larger control is random weights, but for layer 1."""
    trained = curve(0.5 + by, 0.55 + by, 0.9 + by, shares=(0.0, 0.25, 0.75))
    return Known(trained, curve(0.5, 0.52, 0.6), curve(0.48, 0.53, 0.5))


def never() -> Known:
    return Known(curve(0.7, 0.71, 0.7), curve(0.7, 0.72, 0.71), curve(0.5, 0.5, 0.5))


def early() -> Known:
    return Known(curve(0.6, 0.8, 0.8), curve(0.6, 0.6, 0.6), curve(0.5, 0.5, 0.5))


def test_it_opens_where_the_selectivity_is_largest_and_says_it() -> None:
    view = ProbeView({"a coin": never(), "late": late()})
    assert (view.task, view.layer) == (1, 2)
    assert view.description() == (
        "“late”, layers 0 to 2: 90.0 % right, 30.0 points beyond the control of 60.0 %. "
        "Expected layer 1.88, centre of gravity 1.75, K 0.54 nats."
    )
    view.layer = 1
    assert "55.0 % right, 2.0 points beyond the control of 53.0 %" in view.description()


def test_seeds_have_an_error_of_the_difference() -> None:
    view = ProbeView({"late": [late(0), late(0.03), late(0.06)]}, layer=2)
    assert (
        "93.0 % right, 33.0 ± 1.7 points beyond the control of 60.0 % (3 seeds)."
        in view.description()
    )
    view.layer = 0
    assert "alone: 53.0 % right, not told from the control of 50.0 % (+3.0 ± 1.7, 3 seeds)" in (
        view.description()
    )


def test_a_score_at_its_control_is_not_told_from_it_and_has_no_place() -> None:
    view = ProbeView({"a coin": never()}, layer=2)
    assert view.description() == (
        "“a coin”, layers 0 to 2: 70.0 % right, not told from the control of 71.0 % (−1.0). With "
        "all layers it is at its control, so its place means nothing."
    )
    assert view.found.sent()["tasks"][0]["expected"] is None


def test_rows_are_ordered() -> None:
    view = ProbeView({"late": late(), "a coin": never(), "early": early()})
    assert view.rows() == ["late", "a coin", "early"]
    view.order = "expected layer"
    assert view.rows() == ["early", "late", "a coin"]
    view.order = "selectivity"
    assert view.rows() == ["late", "early", "a coin"]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"a": "b"}, "“a” should be what known_where found, or a list of it"),
        ({"a": []}, "“a” should be what known_where found"),
        ({"a": late(), "b": Known(curve(0.5), curve(0.5), curve(0.5))}, "of 1 and 3 layers"),
        ({"a": [late(), Known(curve(0.5), curve(0.5), curve(0.5))]}, "the same number of layers"),
        ({str(at): late() for at in range(17)}, "at most 16 tasks, got 17"),
        ({}, "`known`"),
        (late(), "`known`"),
    ],
)
def test_what_is_not_known_is_refused(known: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        ProbeView(known)


def test_what_cannot_be_chosen_is_refused() -> None:
    view = example()
    for name, value, said in (
        ("task", 4, "`task` should be 0 to 3 here, got 4"),
        ("layer", 5, "`layer` should be 0 to 4 here, got 5"),
        ("layer", -1, "`layer` should be 0 to 4 here, got -1"),
        ("order", "by size", "order"),
    ):
        with pytest.raises(traitlets.TraitError, match=said):
            setattr(view, name, value)


def test_the_picture_has_a_row_for_each_question() -> None:
    drawing = example().still()
    texts = [part["content"] for kind, part in drawing.parts if kind == "text"]
    assert {"begins a word", "in brackets", "same word", "a coin"} <= set(texts)
    assert sum(kind == "patch" for kind, _ in drawing.parts) == 4, "a band for each"
    assert drawing.high < 760
