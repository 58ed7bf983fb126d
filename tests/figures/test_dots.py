"""Dots of scores: where they stand, what the description says, what is refused."""

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


def test_a_long_title_has_room_and_panels_keep_their_width():
    short, long = (score_dots(SCORES, title=title).layout for title in ("Two", "Two tasks " * 9))
    assert long.width > 90 * 9
    inner = [one.width - one.margin.l - one.margin.r for one in (short, long)]
    assert inner[0] == inner[1]


def test_the_description_and_the_table_say_the_same():
    picture = score_dots(SCORES, title="Two tasks")
    assert "copying: from random with 93 to vanilla with 98." in picture.description
    first = {"task": "copying", "model": "vanilla", "mean": 98.0}
    assert picture.rows[0] == first | {"smallest": 97.0, "largest": 99.0, "seeds": 3}
    assert picture.rows[2]["smallest"] == picture.rows[2]["largest"] == 50.0
    assert "<svg" in picture.svg()


def test_few_panels_are_wide_and_many_are_narrow():
    few, many = (
        score_dots({f"task {i}": SCORES["copying"] for i in range(count)}, title="t").layout
        for count in (2, 9)
    )
    inside = [page.width - page.margin.l - page.margin.r for page in (few, many)]
    shares = [page.xaxis.domain[1] - page.xaxis.domain[0] for page in (few, many)]
    assert inside[0] * shares[0] > 2 * inside[1] * shares[1] > 180
    assert few.width < 760


def test_panels_may_share_one_scale():
    picture = score_dots(SCORES, title="t", limits=(0, 100))
    assert picture.layout.xaxis.range == picture.layout.xaxis2.range == (-4.0, 104.0)
    with pytest.raises(ValueError, match=r"leave out scores, which go from 91.0 to 99.0"):
        score_dots(SCORES, title="t", limits=(0, 98))


def test_small_scores_keep_their_digits():
    row = score_dots({"bits": {"dense": [1.901, 1.905]}}, title="t").rows[0]
    assert (row["mean"], row["smallest"], row["largest"]) == (1.903, 1.901, 1.905)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="`scores` is empty"):
        score_dots({}, title="nothing")
    with pytest.raises(ValueError, match=r"\['dense'\] stand in no row of the first panel"):
        score_dots({**SCORES, "recall": {"dense": [1.0]}}, title="one too many")
