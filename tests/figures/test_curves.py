import re
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import sympy

from attnlab.core.card import Card, Paper, letters
from attnlab.figures.claims import claimed_costs
from attnlab.figures.costs import cost_curves, trade_off
from attnlab.figures.curves import spaced
from attnlab.figures.losses import loss_curves
from attnlab.figures.roofline import roofline
from attnlab.figures.spectra import spectrum_curves
from attnlab.figures.theme import DASHES, MARKERS, SERIES


def run(*losses, validation=None, first=0):
    rows = [{"step": first + i, "loss": loss} for i, loss in enumerate(losses)]
    if validation is not None:
        rows[-1]["validation_loss"] = validation
    return rows


def test_training_and_validation_are_distinguished(drawn):
    picture = loss_curves({"full": run(5.0, 3.0, 2.0, validation=2.5)}, title="It learns")
    training, validation = picture.data
    np.testing.assert_allclose(drawn(picture)["y"], [5, 3, 2])
    np.testing.assert_allclose(drawn(picture)["x"], [0, 1, 2])
    assert (training.mode, validation.mode) == ("lines", "lines+markers")
    assert picture.layout.xaxis.title.text == "training step"
    assert picture.layout.yaxis.title.text == "loss (nats per token)"
    low, high = picture.layout.yaxis.range
    assert low < 2
    assert high > 5
    assert "full, training: from 5 to 2." in picture.description


def test_seeds_become_a_mean_and_a_band(drawn):
    picture = loss_curves({"full": [run(4.0, 1.0), run(5.0, 2.0), run(9.0, 3.0)]}, title="Seeds")
    band, line = drawn(picture, 0), drawn(picture, 1)
    np.testing.assert_allclose(line["y"], [6, 2])
    np.testing.assert_allclose(band["y"], [9, 3, 1, 4])
    assert band["fill"] == "toself"
    assert line["name"] == "full, training, 3 seeds"
    assert "from 1 to 3 across seeds" in picture.description
    assert picture.rows[-1] == {
        "curve": "full, training, 3 seeds",
        "step": 1,
        "mean": 2.0,
        "smallest": 1.0,
        "largest": 3.0,
    }


def test_runs_differ_in_colour_dash_and_marker():
    runs = {name: run(3.0, validation=2.0) for name in "abc"}
    validation = loss_curves(runs, title="Three").data[1::2]
    assert [trace.line.color for trace in validation] == list(SERIES[:3])
    assert [trace.line.dash for trace in validation] == list(DASHES[:3])
    assert [trace.marker.symbol for trace in validation] == list(MARKERS[:3])


def test_long_runs_are_drawn_as_means_and_say_so(drawn):
    picture = loss_curves({"long": run(*range(1, 1001))}, title="Long")
    assert len(drawn(picture)["y"]) == 250
    assert drawn(picture)["y"][0] == pytest.approx(2.5)
    assert "drawn as means of 4 steps" in picture.description
    assert "from 1 to 1e+03" in picture.description


def test_a_log_axis_has_its_range_in_powers_and_enough_ticks():
    picture = loss_curves({"full": run(5.0, 2.0)}, title="Log", log=True)
    axis = picture.layout.yaxis
    assert axis.type == "log"
    assert axis.range[0] == pytest.approx(np.log10(2), abs=0.03)
    assert len(axis.tickvals) >= 3


def test_costs_are_log_log_with_their_slopes(drawn):
    lengths = (101, 199, 401)
    series = {"naive": [(n, 3e-6 * n**2) for n in lengths], "linear": [(n, n) for n in lengths]}
    picture = cost_curves(series, quantity="time (ms)", title="Two slopes")
    assert picture.layout.xaxis.type == picture.layout.yaxis.type == "log"
    assert picture.layout.yaxis.title.text == "time (ms)"
    assert [t.name for t in picture.data] == [
        "naive  ∝ n<sup>2.00</sup>",
        "linear  ∝ n<sup>1.00</sup>",
    ]
    np.testing.assert_allclose(drawn(picture)["x"], lengths)
    assert picture.data[0].marker.symbol != picture.data[1].marker.symbol
    assert "naive: 0.0306 at n = 101" in picture.description
    assert "to the power 2.00" in picture.description
    assert picture.rows[0] == {"series": "naive", "n": 101, "time (ms)": pytest.approx(0.030603)}


def test_given_exponents_are_shown_and_points_are_sorted(drawn):
    picture = cost_curves(
        {"a": [(7, 2.0), (3, 1.0)]}, quantity="memory (MiB)", title="Given", exponents={"a": 1.25}
    )
    assert picture.data[0].name == "a  ∝ n<sup>1.25</sup>"
    np.testing.assert_allclose(drawn(picture)["x"], [3, 7])


def test_costs_may_grow_with_another_letter():
    series = {"a": [(3, 9.0), (5, 25.0)]}
    picture = cost_curves(series, quantity="s", title="W", length="head width d", letter="d")
    assert picture.layout.xaxis.title.text == "head width d"
    assert picture.data[0].name == "a  ∝ d<sup>2.00</sup>"
    assert picture.data[0].hovertemplate.startswith("d = ")
    assert "s against d, both axes logarithmic. a: 9 at d = 3, 25 at d = 5" in picture.description
    assert "growing like d to the power 2.00" in picture.description
    assert [row["d"] for row in picture.rows] == [3, 5]


def test_a_spectrum_says_how_many_directions_reach_the_share(drawn):
    series = {"layer 0": [0.5, 0.9, 1.0], "layer 1": [0.2, 0.4, 0.7]}
    picture = spectrum_curves(series, title="Low rank?", share=0.9)
    np.testing.assert_allclose(drawn(picture)["x"], [1, 2, 3])
    np.testing.assert_allclose(drawn(picture)["y"], [0.5, 0.9, 1.0])
    assert [t.name for t in picture.data] == [
        "layer 0, 2 reach 0.9",
        "layer 1, 0.9 is not reached",
        "0.9",
    ]
    assert list(picture.data[2].y) == [0.9, 0.9]
    assert picture.data[0].line.dash != picture.data[1].line.dash
    assert "layer 0: the largest alone holds 0.5; 2 reach 0.9." in picture.description
    assert [row["rank for 0.9"] for row in picture.rows] == [2, None]
    low, high = picture.layout.yaxis.range
    assert low <= 0
    assert high > 1


def test_several_maps_become_a_mean_and_a_band(drawn):
    picture = spectrum_curves({"all": [[0.2, 0.8], [0.6, 1.0]]}, title="Heads", share=0.5)
    band, line = drawn(picture, 0), drawn(picture, 1)
    np.testing.assert_allclose(line["y"], [0.4, 0.9])
    np.testing.assert_allclose(band["y"], [0.6, 1.0, 0.8, 0.2])
    assert line["name"] == "all, 2 reach 0.5"


@pytest.fixture
def cards():
    n, d, h, w = letters("n d h w")
    paper = Paper("A. Author", "A paper", "Venue", 2017)

    def card(name, time):
        forms = {"naive": lambda q: q}
        return Card(
            name=name,
            title=name.title(),
            family="dense",
            role="attend",
            paper=paper,
            forms=forms,
            causal="optional",
            time=time,
            memory=n,
            build=dict,
        )

    return [card("window", 4 * n * w * d * h), card("full", 4 * n**2 * d * h)]


def test_claims_are_counted_from_the_cards_largest_first(cards, drawn):
    picture = claimed_costs(cards, n=1024, title="Claims", values={"w": 32})
    assert list(picture.data[0].x) == [4 * 1024**2 * 64 * 4, 4 * 1024 * 32 * 64 * 4]
    assert picture.layout.yaxis.ticktext[0].startswith("Full  O(")
    assert picture.layout.yaxis.ticktext[0].endswith("n²)")
    assert [row["mechanism"] for row in picture.rows] == ["Full", "Window"]
    assert "Most: Full" in picture.description


def test_claims_ask_for_the_letters_they_need(cards):
    with pytest.raises(ValueError, match=r"'window' also depends on w: give values=\{'w'"):
        claimed_costs(cards, n=7, title="")
    with pytest.raises(ValueError, match="no cost 'tim'; did you mean 'time'"):
        claimed_costs(cards, n=7, what="tim", title="")
    assert isinstance(cards[0].time, sympy.Expr)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: loss_curves({}, title=""), "`runs` is empty"),
        (lambda: loss_curves({"a": []}, title=""), "'a' is empty"),
        (lambda: loss_curves({"a": [{"step": 1}]}, title=""), "neither 'loss' nor"),
        (lambda: loss_curves({"a": [{"loss": 1.0}]}, title=""), "without 'step'"),
        (lambda: loss_curves({"a": run(float("nan"))}, title=""), "a: loss.* NaN"),
        (lambda: loss_curves({"a": run(0.0)}, title="", log=True), "no place on a log axis"),
        (
            lambda: loss_curves({"a": [run(1.0), run(1.0, first=3)]}, title=""),
            "'loss' at different steps",
        ),
        (lambda: cost_curves({}, quantity="", title=""), "`series` is empty"),
        (lambda: cost_curves({"a": [(1, 0)]}, quantity="", title=""), "0 or below"),
        (lambda: cost_curves({"a": [(1, 2, 3)]}, quantity="", title=""), "pairs \\(n, cost\\)"),
        (
            lambda: cost_curves({"a": [(1, 2)]}, quantity="", title="", exponents={"b": 1}),
            "not a series",
        ),
        (lambda: claimed_costs([], n=1, title=""), "`cards` is empty"),
        (lambda: spectrum_curves({}, title=""), "`series` is empty"),
        (lambda: spectrum_curves({"a": [1]}, title="", share=90), "0 < share ≤ 1, got 90"),
        (lambda: spectrum_curves({"a": [0.5, 2]}, title=""), "shares between 0 and 1"),
        (lambda: spectrum_curves({"a": [0.5, 0.4]}, title=""), "'a' falls"),
        (lambda: spectrum_curves({"a": [[[0.5]]]}, title=""), r"2 axes \(maps, rank\)"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_history_or_bare_rows_in_place_of_named_rows():
    class History:
        rows: ClassVar = [{"step": 1, "loss": 2.0}]

    with pytest.raises(TypeError, match=r"run 'a' is a History: give its rows, as history\.rows"):
        loss_curves({"a": History()}, title="t")
    with pytest.raises(TypeError, match="`runs` should map names to values, such as"):
        loss_curves(History.rows, title="t")


def test_a_trade_off_has_a_mark_for_each_seed_and_one_for_the_mean():
    points = {"dense": (2080, [1.5, 1.7, 1.6]), "strided": (708, [1.25])}
    picture = trade_off(points, cost="pairs", score="bits per pixel", title="Fewer pairs")
    seeds, dense, strided = picture.data
    assert (list(dense.x), list(dense.y)) == ([2080.0], [pytest.approx(1.6)])
    assert (list(seeds.x), list(seeds.y)) == ([2080.0] * 3, [1.5, 1.7, 1.6])
    assert (list(strided.x), list(strided.y)) == ([708.0], [1.25])  # a single seed is its mean
    assert dense.marker.symbol != strided.marker.symbol
    low, high = picture.layout.yaxis.range
    assert low < 1.25 < 1.7 <= high
    assert "dense: 1.6 at 2,080; strided: 1.25 at 708." in picture.description
    assert picture.rows[1] == {
        "name": "strided",
        "pairs": 708,
        "bits per pixel": 1.25,
        "smallest": 1.25,
        "largest": 1.25,
        "seeds": 1,
    }
    with pytest.raises(ValueError, match="`points` is empty"):
        trade_off({}, cost="pairs", score="bits", title="nothing")


def test_a_still_trade_off_has_its_seeds_and_no_line_where_none_joins():
    points = {"dense": (2080, [1.5, 1.7, 1.6]), "strided": (708, [1.25])}
    still = trade_off(points, cost="pairs", score="bits", title="Fewer").svg()
    blue = re.findall(rf'<circle[^>]*fill="{SERIES[0]}"', still)
    assert len(blue) == 5  # three seeds, their mean, and its place in the legend
    for colour in SERIES[:2]:
        assert not re.findall(rf'<path d="M[^"Z]*" fill="none" stroke="{colour}"', still)


def test_more_curves_than_colours_are_named_at_their_ends():
    lines = {f"model {i}": [(64, 1.0 + i), (128, 2.0 + i / 1000)] for i in range(6)}
    few = cost_curves(dict(list(lines.items())[:5]), quantity="ms", title="t")
    many = cost_curves(lines, quantity="ms", title="t")
    assert not few.layout.annotations
    assert [note.text for note in many.layout.annotations] == list(lines)
    inner = many.layout.height - many.layout.margin.t - many.layout.margin.b
    heights = [note.y * inner for note in many.layout.annotations]
    assert all(after - before >= 13.9 for before, after in pairwise(heights))
    assert many.layout.margin.r > few.layout.margin.r + 40
    assert many.layout.width - many.layout.margin.r == few.layout.width - few.layout.margin.r
    assert "model 5</text>" in many.svg()


def test_names_at_the_ends_stay_inside_the_figure():
    assert spaced([5.0, 5.0, 30.0], 14, 100) == [0.0, 14.0, 30.0]
    assert spaced([99.0, 98.0, 97.0], 14, 100) == [100.0, 86.0, 72.0]
    assert spaced([50.0, 50.0, 50.0, 90.0], 14, 100) == [36.0, 50.0, 64.0, 90.0]
    assert spaced([10.0, 60.0], 14, 100) == [10.0, 60.0]


def test_sizes_of_one_thing_are_joined_in_a_trade_off():
    points = {"dense": (2080, [1.5]), "window": [(127, [2.5, 2.7]), (702, [1.75])]}
    picture = trade_off(points, cost="pairs", score="bits", title="How few are enough?")
    dense, seeds, window = picture.data
    assert dense.mode == "markers"
    assert window.mode == "lines+markers"
    assert list(window.x) == [127.0, 702.0]
    assert list(window.y) == pytest.approx([2.6, 1.75])
    assert list(seeds.y) == [2.5, 2.7, 1.75]
    assert [row["seeds"] for row in picture.rows] == [1, 2, 1]
    assert "window: 2.6 at 127; window: 1.75 at 702." in picture.description


def legend(picture):
    return [trace.name for trace in picture.data if trace.showlegend is not False]


def named(picture, name):
    return next(place for place, t in enumerate(picture.data) if t.name.startswith(name))


SQUARE = {"full": [(n, 3.0 * n**2, 2.5 * n**2, 4.0 * n**2) for n in (101, 199, 401)]}


def test_spread_claim_fit_crossover_and_limit_stand_beside_the_points(drawn):
    picture = cost_curves(
        SQUARE,
        quantity="bytes",
        title="All",
        claims={"full": "n"},
        intervals={"full": (1.9, 2.2)},
        crossovers={"cheaper": (1234, 1000, 1500)},
        limits={"memory": 5e6},
    )
    assert legend(picture) == [
        "full  ∝ n<sup>2.00</sup>  (1.90 to 2.20)",
        "full: claimed ∝ n",
        "cheaper: 1,230 (1,000 to 1,500)",
        "memory",
    ]
    assert len(legend(picture)) * 20 + 62 == picture.layout.margin.b
    claim = drawn(picture, named(picture, "full: claimed"))
    np.testing.assert_allclose(claim["y"][2] / claim["y"][0], 401 / 101, rtol=1e-5)
    middle = np.exp(np.mean(np.log([3.0 * n**2 for n in (101, 199, 401)])))
    np.testing.assert_allclose(np.exp(np.mean(np.log(claim["y"]))), middle, rtol=1e-5)
    band = drawn(picture, named(picture, "full: fitted"))
    slopes = [np.log(band["y"][2] / band["y"][1]) / np.log(band["x"][2] / band["x"][1])]
    slopes += [np.log(band["y"][3] / band["y"][4]) / np.log(band["x"][3] / band["x"][4])]
    np.testing.assert_allclose(slopes, [2.2, 1.9], rtol=1e-4)
    whiskers = drawn(picture, named(picture, "full: spread"))
    np.testing.assert_allclose(
        whiskers["x"], [101, 101, np.nan, 199, 199, np.nan, 401, 401, np.nan]
    )
    np.testing.assert_allclose(whiskers["y"][:2], [2.5 * 101**2, 4.0 * 101**2])
    line = drawn(picture, named(picture, "cheaper: 1,230"))
    np.testing.assert_allclose(line["x"], [1234, 1234])
    assert picture.layout.xaxis.range[1] > np.log10(1500)
    assert picture.layout.yaxis.range[1] > np.log10(5e6)
    for words in (
        "full is claimed to grow like n.",
        "fitted exponent of full is between 1.90 and 2.20.",
        "cheaper: n = 1,230 (1,000 to 1,500).",
        "memory: 5e+06.",
    ):
        assert words in picture.description
    assert picture.rows[0]["low"] == 2.5 * 101**2
    assert '2.00</tspan><tspan dy="5">' in picture.svg()  # what follows an exponent stands lower


@pytest.mark.parametrize(
    ("claim", "ratio"),
    [("n", 4), ("n log n", 4 * np.log(404) / np.log(101)), ("n√n", 8), ("n²", 16), (0.5, 2)],
)
def test_a_claim_grows_as_it_is_written(claim, ratio, drawn):
    series = {"a": [(101, 1.0), (404, 2.0)]}
    picture = cost_curves(series, quantity="s", title="t", claims={"a": claim})
    low, high = drawn(picture, 1)["y"]
    assert high / low == pytest.approx(ratio, rel=1e-5)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"claims": {"b": "n"}}, "not a series"),
        ({"claims": {"a": "n³"}}, "did you mean"),
        ({"claims": {"a": "n log n"}}, "leave it out"),
        ({"intervals": {"a": (2, 1)}}, "lowest, highest"),
        ({"crossovers": {"x": (5, 6, 7)}}, "with n between"),
        ({"crossovers": {"x": 0}}, "above 0"),
        ({"limits": {"x": -1}}, "above 0"),
    ],
)
def test_what_cannot_stand_beside_is_refused(more, words):
    with pytest.raises((ValueError, TypeError), match=words):
        cost_curves({"a": [(1, 1.0), (3, 2.0)]}, quantity="s", title="t", **more)


def test_the_pareto_front_joins_what_nothing_cheaper_equals():
    points = {"a": (10, [3.0, 4.0]), "b": (40, [5.0, 5.4]), "c": (50, [5.1]), "d": (40, [1.0])}
    high = trade_off(points, cost="FLOPs", score="right", title="t", front="highest", log=True)
    assert legend(high)[0] == "Pareto front"
    assert list(high.data[0].x) == [10, 40, 40]
    assert list(high.data[0].y) == pytest.approx([3.5, 3.5, 5.2])
    assert high.layout.xaxis.type == "log"
    assert high.description.endswith("On the Pareto front: a, b.")
    assert [row["on the front"] for row in high.rows] == ["yes", "yes", "no", "no"]
    low = trade_off(points, cost="FLOPs", score="loss", title="t", front="lowest")
    assert low.description.endswith("On the Pareto front: a, d.")
    assert low.layout.xaxis.type == "linear"
    with pytest.raises(ValueError, match="logarithmic"):
        trade_off({"a": (0, [1.0])}, cost="c", score="s", title="t", log=True)


def test_a_roofline_has_its_ridge_and_says_what_the_bound_is(drawn):
    points = {"copy": (1e6, 1e7, 0.01), "product": (2e9, 1e6, 0.05)}
    picture = roofline(points, peak=1e11, bandwidth=1e10, title="Roof")
    roof = drawn(picture)
    np.testing.assert_allclose(roof["x"], [0.1, 10, 2000])
    np.testing.assert_allclose(roof["y"], [1, 100, 100])
    np.testing.assert_allclose([drawn(picture, 1)["x"], drawn(picture, 2)["x"]], [[0.1], [2000]])
    assert drawn(picture, 2)["y"] == pytest.approx([40.0])
    assert [row["bound"] for row in picture.rows] == [
        "the memory is the bound",
        "the arithmetic is the bound",
    ]
    assert [row["of what is possible (%)"] for row in picture.rows] == [10.0, 40.0]
    with pytest.raises(ValueError, match="got 2 numbers"):
        roofline({"a": (1, 2)}, peak=1, bandwidth=1, title="t")
