"""Scores by length: a mark for each seed, medians, what is refused."""

import pytest

from attnlab.figures.lengths import length_scores

SCORES = {
    "rope": {64: [40.0, 35.0, 90.0], 32: [99.0, 98.0, 100.0]},
    "<none>": {32: [97.0], 64: [50.0]},
}


def test_every_seed_is_a_mark_and_the_line_goes_through_the_medians() -> None:
    line, marks, *_ = length_scores(SCORES, title="Longer", trained=32).data
    assert list(line.x) == [32.0, 64.0]
    assert list(line.y) == [99.0, 40.0]
    assert list(marks.x) == [32.0, 32.0, 32.0, 64.0, 64.0, 64.0]
    assert list(marks.y) == [99.0, 98.0, 100.0, 40.0, 35.0, 90.0]


def test_the_longest_length_in_training_is_a_line_of_its_own() -> None:
    border = length_scores(SCORES, title="Longer", trained=32).data[-1]
    assert list(border.x) == [32, 32]
    assert border.name == "the longest in training: 32"
    assert len(length_scores(SCORES, title="Longer").data) == 4


def test_schemes_differ_by_more_than_colour() -> None:
    marks = length_scores(SCORES, title="Longer").data[1::2]
    assert len({trace.marker.symbol for trace in marks}) == 2


def test_words_and_table_say_the_same() -> None:
    picture = length_scores(SCORES, title="Longer", trained=32)
    assert "Trained up to 32. rope: medians 99 at 32, 40 at 64." in picture.description
    assert {"series": "rope", "length": 64, "right tokens (%)": "40, 35, 90"} in picture.rows
    assert "&lt;none&gt;" in picture.svg()


def test_what_is_no_score_is_refused() -> None:
    with pytest.raises(ValueError, match="`scores` is empty"):
        length_scores({}, title="Longer")
    with pytest.raises(ValueError, match="length of a"):
        length_scores({"a": {0: [1.0]}}, title="Longer")
