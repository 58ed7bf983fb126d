"""Lines on plain axes: points in their order, lines told apart, words and table."""

import numpy as np
import pytest

from attnlab.figures.lines import line_curves

SERIES = {"a = 1.5": [(-1, -0.9), (2, 0.4), (0, 0.7)], "<b>": [(0, 0), (1, -2.5)]}
WORDS = {"title": "Steps", "across": "state", "quantity": "next state"}


def test_points_are_joined_in_their_order(drawn) -> None:
    picture = line_curves(SERIES, **WORDS)
    np.testing.assert_allclose(drawn(picture, 0)["x"], [-1, 2, 0])
    np.testing.assert_allclose(drawn(picture, 0)["y"], [-0.9, 0.4, 0.7], rtol=1e-6)
    np.testing.assert_allclose(drawn(picture, 1)["y"], [0, -2.5])
    assert {trace.mode for trace in picture.data} == {"lines"}


def test_axes_hold_all_points_and_have_names() -> None:
    layout = line_curves(SERIES, **WORDS).layout
    assert layout.xaxis.range[0] < -1
    assert layout.xaxis.range[1] > 2
    assert layout.yaxis.range[0] < -2.5
    assert layout.yaxis.range[1] > 0.7
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("state", "next state")


def test_lines_differ_by_more_than_colour() -> None:
    first, second = line_curves(SERIES, **WORDS).data
    assert first.line.dash != second.line.dash
    assert first.line.color != second.line.color


def test_words_and_table_say_the_same() -> None:
    picture = line_curves(SERIES, **WORDS)
    assert "a = 1.5: from -0.9 at -1 to 0.7 at 0, between -0.9 and 0.7." in picture.description
    assert picture.rows[4] == {"series": "<b>", "state": 1.0, "next state": -2.5}
    assert picture.data[1].name == "&#60;b&#62;"
    assert "&lt;b&gt;" in picture.svg()


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="`series` is empty"):
        line_curves({}, **WORDS)
    with pytest.raises(ValueError, match=r"series 'a' should hold pairs \(x, y\), got 3"):
        line_curves({"a": [(0, 1, 2)]}, **WORDS)
