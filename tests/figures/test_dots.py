"""Dots of scores: where they stand, what the twin says, what is refused."""

import math

import pytest

from attnlab.figures.dots import score_dots

SCORES = {
    "copying": {"vanilla": [97.0, 98.0, 99.0], "random": [91.0, 95.0, 93.0]},
    "sorting": {"random": [50.0]},
}


def test_seeds_means_and_spread_stand_in_the_row_of_their_model():
    picture = score_dots(SCORES, title="Two <b>tasks</b>")
    bars, seeds, means, _, alone, only = picture.data
    assert list(means.x) == [98.0, 93.0]
    assert list(means.y) == [0.0, 1.0]
    assert list(bars.x) == pytest.approx([97, 99, math.nan, 91, 95, math.nan], nan_ok=True)
    assert list(seeds.x) == [97.0, 98.0, 99.0, 91.0, 95.0, 93.0]
    assert list(alone.y) == [1.24]
    assert (only.xaxis, only.yaxis, list(only.x), list(only.y)) == ("x2", "y2", [50.0], [1.0])
    assert list(picture.layout.yaxis.ticktext) == ["vanilla", "random"]
    assert picture.layout.xaxis.domain[1] < picture.layout.xaxis2.domain[0]
    low, high = picture.layout.xaxis.range
    assert low < 91 < 99 < high


def test_the_twin_and_the_table_say_the_same():
    picture = score_dots(SCORES, title="Two tasks")
    assert "copying: from random with 93 to vanilla with 98." in picture.twin
    first = {"task": "copying", "model": "vanilla", "mean": 98.0}
    assert picture.rows[0] == first | {"standard deviation": 1.0, "seeds": 3}
    assert picture.rows[2]["standard deviation"] == 0.0
    assert "<svg" in picture.svg()


def test_a_long_title_is_not_cut():
    short, long = (score_dots(SCORES, title=title).layout.width for title in ("Two", 50 * "M"))
    assert short < 310
    assert long > 50 * 9


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="`scores` is empty"):
        score_dots({}, title="nothing")
    with pytest.raises(ValueError, match=r"\['dense'\] stand in no row of the first panel"):
        score_dots({**SCORES, "recall": {"dense": [1.0]}}, title="one too many")
