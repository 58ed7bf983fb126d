"""Images side by side: where each stands, what the description says, what is refused."""

import numpy as np
import pytest

from attnlab.figures.images import image_grid

IMAGES = np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7)


def test_each_image_stands_in_its_row_and_column_with_a_gap_between(drawn):
    picture = image_grid(IMAGES, title="Six images", rows=["a", "b"], columns=["x", "y", "z"])
    cells = np.array(drawn(picture)["z"], float)
    assert cells.shape == (2 * 5 + 1, 3 * 7 + 2)
    np.testing.assert_array_equal(cells[6:, 8:15], IMAGES[1, 1])
    np.testing.assert_array_equal(cells[:5, 16:], IMAGES[0, 2])
    assert np.isnan(cells[5]).all()
    assert np.isnan(cells[:, 7]).all()
    assert picture.layout.coloraxis.cmax == IMAGES.max()
    low, high = picture.layout.yaxis.range
    assert low > high  # the first row stands above


def test_names_stand_beside_their_images():
    picture = image_grid(IMAGES, title="Six", rows=["a", "<b>"], columns=["x", "y", "z"], largest=3)
    annotations = {note.text: (note.x, note.y) for note in picture.layout.annotations}
    assert annotations["a"][1] == pytest.approx(1 - 2.5 / 11)
    assert annotations["&#60;b&#62;"][1] == pytest.approx(1 - 8.5 / 11)
    assert annotations["y"][0] == pytest.approx((8 + 3.5) / 23)
    assert picture.layout.coloraxis.cmax == 3


def test_the_description_and_the_table_say_what_there_is():
    picture = image_grid(IMAGES, title="Six", rows=["a", "b"])
    assert (
        "6 images of 5 × 7 pixels, from 0 (light) to 209 (dark), rows: a, b." in picture.description
    )
    assert picture.rows[0] == {"row": "a", "column": 0, "mean": 17.0, "pixels above zero": 34}
    assert picture.rows[5]["row"] == "b"
    assert "<svg" in picture.svg()
    third = image_grid(IMAGES / 3e5, title="Six")
    assert "from 0 (light) to 0.0006967 (dark)" in third.description


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="`rows` should name 2 rows of images, got 1"):
        image_grid(IMAGES, title="one name", rows=["a"])
    with pytest.raises(ValueError, match="`columns` should name 3 columns"):
        image_grid(IMAGES, title="one name", columns=["a"])
    with pytest.raises(ValueError, match="too many to draw: at most 40,000"):
        image_grid(np.zeros((1, 1, 300, 300)), title="large")
