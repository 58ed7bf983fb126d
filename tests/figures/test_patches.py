"""Maps of patches: where each stands, the query's circle, the line around the ink, the words."""

import numpy as np
import pytest

from attnlab.figures.patches import HALO, patch_maps
from attnlab.figures.theme import CIVIDIS, QUERY, contrast

MAPS = np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7) / 210
INK = np.zeros((5, 7), bool)
INK[1:3, 4] = True


def test_each_map_stands_in_its_row_and_column_with_a_gap_between(drawn):
    picture = patch_maps(MAPS, title="Six", rows=["a", "b"], columns=["x", "y", "z"])
    cells = np.array(drawn(picture)["z"], float)
    assert cells.shape == (2 * 5 + 1, 3 * 7 + 2)
    np.testing.assert_allclose(cells[6:, 8:15], MAPS[1, 1], rtol=1e-6)
    assert np.isnan(cells[5]).all()
    assert np.isnan(cells[:, 7]).all()
    low, high = picture.layout.yaxis.range
    assert low > high  # the first row stands above
    assert picture.layout.coloraxis.cmin == 0
    assert picture.layout.coloraxis.cmax == 1
    entries = patch_maps(MAPS, title="Six", quantity="share").layout.coloraxis
    assert entries.cmax == pytest.approx(MAPS.max())
    assert len(picture.data) == 1
    notes = {note.text: (note.x, note.y) for note in picture.layout.annotations}
    assert notes["b"][1] == pytest.approx(1 - 8.5 / 11)
    assert notes["z"][0] == pytest.approx((16 + 3.5) / 23)


def test_the_query_has_a_circle_in_every_map(drawn):
    picture = patch_maps(MAPS, title="Six", query=(4, 2))
    for trace in (1, 2):
        marks = drawn(picture, trace)
        assert list(marks["x"]) == [2, 10, 18] * 2
        assert list(marks["y"]) == [4] * 3 + [10] * 3
    assert (marks["marker"]["color"], marks["marker"]["symbol"]) == QUERY
    assert "The query's patch is in row 4, column 2." in picture.description
    assert any("● the query's patch" in note.text for note in picture.layout.annotations)


def test_each_row_of_maps_may_have_its_own_query(drawn):
    picture = patch_maps(MAPS, title="Six", query=[(4, 2), (0, 6)])
    marks = drawn(picture, 1)
    assert list(marks["x"]) == [2, 10, 18, 6, 14, 22]
    assert list(marks["y"]) == [4] * 3 + [6] * 3
    assert "patch is in row 4, column 2; row 0, column 6." in picture.description


def test_a_line_goes_around_the_ink(drawn):
    picture = patch_maps(MAPS[:1, :1], title="One", ink=INK)
    line = drawn(picture, 2)
    x, y = (np.array(line[axis], float).reshape(-1, 3)[:, :2] for axis in "xy")
    edges = {tuple(map(tuple, zip(*pair, strict=True))) for pair in zip(x, y, strict=True)}
    assert edges == {
        ((3.5, 0.5), (4.5, 0.5)),
        ((3.5, 2.5), (4.5, 2.5)),
        *(((side, top), (side, top + 1)) for side in (3.5, 4.5) for top in (0.5, 1.5)),
    }
    for colour in CIVIDIS:  # one of the two lines is seen on every colour
        assert max(contrast(colour, line) for line in HALO) > 4


def test_description_and_table_say_where_attention_is_largest():
    picture = patch_maps(MAPS, title="Six", rows=["a", "b"], columns=["x", "y", "z"])
    assert "6 maps of 5 × 7 patches, attention weight." in picture.description
    assert "Largest: 0.9952, in the map b, z, at row 4, column 6." in picture.description
    assert picture.rows[0]["row"] == "a"
    assert picture.rows[5]["largest"] == 0.9952
    assert "<svg" in picture.svg()
    zeros = patch_maps(0 * MAPS, title="None", largest=0.5)
    assert zeros.layout.coloraxis.cmax == 0.5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": ["a"]}, "`rows` should name 2 rows of maps, got 1"),
        ({"query": (5, 0)}, r"the query \(5, 0\) is outside of a map of 5 × 7"),
        ({"query": (1,)}, r"`query` should be \(row, column\)"),
        ({"query": [(1, 2)] * 3}, "or 2 of them, one for each row of maps, got 3"),
        ({"query": [(1, 2), (1,)]}, r"`query` should be \(row, column\)"),
        ({"ink": np.ones((5, 6), bool)}, r"`ink` should have shape \(5, 7\)"),
        ({"maps": MAPS - 0.5}, "`maps` are negative"),
        ({"maps": np.zeros((1, 1, 300, 300))}, "too many to draw: at most 40,000"),
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        patch_maps(**{"maps": MAPS, "title": "Six", **wrong})
