import numpy as np
import pytest

from attnlab.figures.examples import image_sequence, token_strip
from attnlab.figures.theme import SERIES


def test_scored_positions_are_framed_marked_and_described(drawn):
    tokens = ["a", "b", "\n", "<b>", "c"]
    scored = np.array([False, False, True, False, True])
    picture = token_strip(tokens, title="Copy", scored=scored, targets=list("vwxyz"))
    plain, framed, marks, words, answers = (drawn(picture, i) for i in range(5))
    assert len(plain["x"]) == 3 * 6
    assert len(framed["x"]) == 2 * 6
    assert framed["line"]["color"] == SERIES[1]
    assert marks["marker"]["symbol"] == "triangle-down"
    assert len(marks["x"]) == 2
    assert words["text"] == ["a", "b", "↵", "&#60;b&#62;", "c"]
    assert answers["text"] == ["x", "z"]
    assert "Framed (the loss counts here): 2 positions, 2, 4." in picture.description
    assert picture.rows[2] == {"position": 2, "token": "↵", "scored": "yes", "target": "x"}
    assert picture.rows[1]["target"] == ""


def test_boxes_wrap_and_never_touch(drawn):
    tokens = [f"token{i}" for i in range(101)]
    picture = token_strip(tokens, title="Long")
    x = drawn(picture)["x"].reshape(-1, 6)
    y = drawn(picture)["y"].reshape(-1, 6)
    assert np.nanmax(x) <= picture.layout.xaxis.range[1]
    for line in np.unique(y[:, 0]):
        left, right = x[y[:, 0] == line][:, 0], x[y[:, 0] == line][:, 1]
        assert (left[1:] > right[:-1]).all()
    assert len(np.unique(y[:, 0])) > 3
    assert np.nanmax(y) < picture.layout.yaxis.range[0]


def test_an_image_is_read_row_by_row(drawn):
    image = np.arange(15.0).reshape(3, 5)
    picture = image_sequence(image, title="Pixels")
    np.testing.assert_array_equal(drawn(picture, 0)["z"], image)
    np.testing.assert_array_equal(drawn(picture, 1)["z"], np.arange(15.0)[None])
    assert picture.layout.yaxis.ticktext == ("0 →", "5 →", "10 →")
    assert picture.layout.yaxis.range == (2.5, -0.5)
    assert "sequence of 15 pixels" in picture.description


def test_patches_are_read_in_the_same_order_with_gaps(drawn):
    image = np.arange(24.0).reshape(4, 6)
    picture = image_sequence(image, title="Patches", patch=2)
    strip = drawn(picture, 1)["z"]
    assert strip.shape == (2, 6 * 3 - 1)
    np.testing.assert_array_equal(strip[:, 0:2], [[0, 1], [6, 7]])
    np.testing.assert_array_equal(strip[:, 9:11], [[12, 13], [18, 19]])
    assert np.isnan(strip[:, 2::3]).all()
    assert picture.layout.xaxis2.ticktext == ("0", "1", "2", "3", "4", "5")
    assert picture.layout.xaxis2.tickvals[1] == 3.5
    assert len(picture.layout.shapes) == 2 + 1 + 5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: token_strip([], title=""), "`tokens` is empty"),
        (lambda: token_strip(["a"] * 513, title=""), "at most 512"),
        (lambda: token_strip(["a", "b"], scored=[True], title=""), "shape \\(2,\\), got \\(1,\\)"),
        (lambda: token_strip(["a", "b"], targets=["a"], title=""), "1 labels for 2 positions"),
        (lambda: image_sequence(np.ones((4, 6)), patch=4, title=""), "divide both sides"),
        (lambda: image_sequence(np.ones((4, 6)), patch=0, title=""), "got 0"),
        (lambda: image_sequence(np.ones(5), title=""), "2 axes \\(height, width\\)"),
        (lambda: image_sequence([[np.nan]], title=""), "NaN"),
        (lambda: image_sequence(np.ones((128, 64)), title=""), "at most 64 × 64"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_one_string_is_not_a_list_of_tokens():
    with pytest.raises(TypeError, match="should be a list, got 'abc'"):
        token_strip("abc", title="")
