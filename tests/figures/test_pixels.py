"""The receptive field of a pixel: the places of panels, the layers' colours, the description."""

import numpy as np
import pytest

from attnlab.figures.pixels import LATE, SOON, pixel_receptive_field
from attnlab.figures.theme import QUERY

BESIDE = np.zeros((3, 5), bool)
BESIDE[1, :3] = True
COLUMN = np.zeros((3, 5), bool)
COLUMN[:2, 2] = True
LAYERS = np.stack([BESIDE, BESIDE | COLUMN])


def test_each_panel_is_the_image(drawn):
    picture = pixel_receptive_field({"line": BESIDE, "column": COLUMN}, (1, 2), title="Two")
    cells = np.array(drawn(picture)["z"], float)
    assert cells.shape[0] == 3
    np.testing.assert_array_equal(cells[:, :5] == 1, BESIDE)
    np.testing.assert_array_equal(cells[:, -5:] == 1, COLUMN)
    assert np.isnan(cells[~(cells == 1)]).all()  # what is not seen shows the paper
    asks = drawn(picture, 3)
    assert asks["x"].tolist() == [2, cells.shape[1] - 3]
    assert asks["y"].tolist() == [1, 1]
    assert (asks["marker"]["color"], asks["marker"]["symbol"]) == QUERY
    assert not picture.frames
    low, high = picture.layout.yaxis.range
    assert low > high  # the first row stands above


def test_frames_add_what_each_layer_brings(drawn):
    picture = pixel_receptive_field({"both": LAYERS}, (1, 2), title="Frames")
    first, second = (np.array(frame.data[0].z, float) for frame in picture.frames)
    np.testing.assert_array_equal(np.nan_to_num(first), BESIDE)
    np.testing.assert_array_equal(np.nan_to_num(second), LAYERS[1] * 2 - BESIDE)
    assert [frame.name for frame in picture.frames] == ["1", "2"]
    np.testing.assert_array_equal(np.nan_to_num(drawn(picture)["z"]), np.nan_to_num(second))
    shades = [shade for _, shade in picture.layout.coloraxis.colorscale]
    assert shades == [SOON, SOON, LATE, LATE]
    assert "data-frame" in picture.svg()


def test_more_than_four_panels_take_another_row():
    picture = pixel_receptive_field(dict.fromkeys("abcdefg", BESIDE), (1, 2), title="Seven")
    names = {note.text: (note.x, note.y) for note in picture.layout.annotations}
    assert names["a · 3"] == (0, 1)
    assert names["e · 3"][0] == 0
    assert 0 < names["e · 3"][1] < 1
    assert names["d · 3"][1] == 1


def test_what_is_not_made_is_hatched_and_blocks_have_edges(drawn):
    halves = np.arange(5) // 3 * np.ones((3, 1), int)
    args = ({"a": BESIDE, "b": COLUMN}, (1, 2))
    picture = pixel_receptive_field(*args, title="Cut", future={"b": ~COLUMN}, blocks={"a": halves})
    (cover,) = picture.layout.images
    assert "hatching" in cover.source
    assert drawn(picture, 2)["x"][:2].tolist() == [2.5, 2.5]
    assert len(drawn(picture, 2)["x"]) == 3 * 3  # an edge and a gap in each row, of panel a alone
    assert "hatched" in picture.layout.annotations[-1].text
    whole = pixel_receptive_field(*args, title="Whole")
    assert not whole.layout.images
    assert "hatched" not in whole.layout.annotations[-1].text


def test_the_description_counts():
    picture = pixel_receptive_field(
        {"both": LAYERS, "line": LAYERS & BESIDE}, (1, 2), title="Count"
    )
    assert "the pixel in row 1, column 2 of 3 × 5 after" in picture.description
    assert "both: 3, 4; line: 3, 3." in picture.description
    assert picture.rows[1] == {
        "panel": "both",
        "after layer": 2,
        "pixels": 4,
        "rows": 2,
        "columns": 3,
    }


def test_what_cannot_be_drawn_is_refused():
    def draw(panels=None, pixel=(1, 2), **more):
        pixel_receptive_field(
            {"a": BESIDE} if panels is None else panels, pixel, title="No", **more
        )

    with pytest.raises(ValueError, match=r"pixel \(3, 2\) is outside of an image of 3 × 5"):
        draw(pixel=(3, 2))
    with pytest.raises(ValueError, match="`panels` is empty"):
        draw({})
    with pytest.raises(TypeError, match="'a' should be bool"):
        draw({"a": BESIDE.astype(int)})
    with pytest.raises(ValueError, match="the same image after the same layers"):
        draw({"a": BESIDE, "b": LAYERS})
    with pytest.raises(ValueError, match="at most 6 layers and 64 × 64"):
        draw({"a": np.zeros((7, 3, 5), bool)})
    with pytest.raises(ValueError, match=r"`future` names \['b'\]"):
        draw(future={"b": BESIDE})
    with pytest.raises(ValueError, match=r"`blocks: a` should have shape \(3, 5\), got \(5, 3\)"):
        draw(blocks={"a": np.zeros((5, 3), int)})
