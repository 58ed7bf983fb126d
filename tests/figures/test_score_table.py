"""The table of scores: where its marks stand, of which kind a cell is, what is refused."""

import pytest

from attnlab.figures.score_table import score_table

SCORES = {
    "parity": {"sum": [52.0, 50.0, 54.0], "delta to 2": [100.0, 98.0, 95.0]},
    "recall": {"delta to 2": [40.0, 60.0], "sum": [100.0, 100.0], "lstm": [94.9, 100.0]},
}
GUESSES = {"parity": 50.0, "recall": 6.0}


def table(**given):
    return score_table(**{"scores": SCORES, "guesses": GUESSES, "title": "A grid"} | given)


def test_marks_of_seeds_stand_on_the_scale_of_their_cell():
    scales, strokes, learned, between, guessing, means, dashes = table().data
    assert list(scales.x)[:2] == [-0.42, 0.42]
    assert list(strokes.x)[:1] == [0.0]  # a guess of 50 %, in the middle of the first column
    assert list(learned.x) == [0.42, 0.4032, 0.378, 1.42, 1.42]
    assert list(between.x) == [0.916, 1.084, 1.3772, 1.42]
    assert list(guessing.x) == [0.0168, 0.0, 0.0336]
    assert list(learned.y) == [1.28] * 3 + [0.28] * 2
    assert list(means.text) == ["52", "98", "100", "50", "97"]
    assert (list(dashes.x), list(dashes.y), list(dashes.text)) == ([0], [2], ["–"])


def test_kinds_differ_by_colour_and_by_symbol():
    _, _, *marks, _, _ = table().data
    assert len({trace.marker.color for trace in marks}) == 3
    assert len({trace.marker.symbol for trace in marks}) == 3
    kinds = {(row["task"], row["model"]): row["kind"] for row in table(near=1.0, learned=99).rows}
    assert kinds["parity", "sum"] == "between"
    assert kinds["parity", "delta to 2"] == "between"
    assert kinds["recall", "sum"] == "learned"


def test_the_description_and_the_table_say_the_same():
    picture = table()
    assert "parity: 95 % or more in every seed: delta to 2." in picture.description
    assert "recall: 95 % or more in every seed: sum." in picture.description
    assert picture.rows[0] == {
        "task": "parity", "model": "sum", "mean": 52.0, "smallest": 50.0, "largest": 54.0,
        "seeds": 3, "kind": "guessing",
    }  # fmt: skip
    none = table(learned=100).description
    assert "parity: none has 100 % in every seed; the best mean is that of delta to 2." in none
    assert "<svg" in picture.svg()


def test_many_columns_are_as_wide_as_their_names_need():
    wide = table(scores={f"a long name {n}": SCORES["parity"] for n in range(9)},
                 guesses={f"a long name {n}": 50 for n in range(9)}).layout  # fmt: skip
    column = (wide.width - wide.margin.l - wide.margin.r) / 9
    assert column > 11 * len("a long name 1") * 0.55
    names = [(trace.x, trace.y) for trace in table().data]
    assert len(names) == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guesses": {"parity": 50}}, "`guesses` should say what a guess gets in recall"),
        ({"scores": {"parity": {"sum": [101.0]}}}, "parity, sum should be per cent, from 0 to 100"),
        ({"guesses": GUESSES | {"parity": -1}}, "guesses, parity should be per cent"),
    ],
)
def test_what_is_no_per_cent_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        table(**given)
