"""Maps of several mechanisms side by side."""

import json

import numpy as np
import pytest

from attnlab.figures.gallery import map_gallery


def toeplitz(kernel):
    n = len(kernel)
    distance = np.arange(n)[:, None] - np.arange(n)
    return np.where(distance < 0, 0, np.array(kernel)[np.maximum(distance, 0)])


MAPS = {
    "a <b>": toeplitz([4.0, -1.0, 0.25]),
    "full": np.full((3, 3), 0.2),
    "one": np.diag([0.0, 0.0, 9.0]),
}


def test_each_map_has_a_scale_of_its_own_and_grows_with_the_root(drawn):
    picture = map_gallery(MAPS, list("xyz"), title="Three", columns=2)
    first, full, one = (drawn(picture, at)["z"] for at in range(3))
    assert first[0, 0] == full[1, 2] == one[2, 2] == 255
    assert first[1].tolist() == [128, 255, 0]
    assert one[0, 0] == 0
    assert drawn(picture)["name"] == "a &#60;b&#62;"
    assert picture.layout.coloraxis.cmax == 255


def test_what_is_exactly_zero_is_hatched_and_said():
    page = map_gallery(MAPS, title="Three", columns=2).layout
    assert [image.xref for image in page.images] == ["x", "x3"]
    texts = [note.text for note in page.annotations]
    assert texts == ["a &#60;b&#62;", "full", "one", "rows take from columns · hatched: exactly 0"]
    page = map_gallery({"full": MAPS["full"]}, title="One").layout
    assert page.annotations[-1].text == "rows take from columns"


def test_maps_that_nobody_trained_are_labelled():
    picture = map_gallery(MAPS, title="Three", columns=2, untrained=["full", "one"])
    labels = [note for note in picture.layout.annotations if note.text == "untrained"]
    assert [(label.x, label.y) for label in labels] == [
        pytest.approx((picture.layout.xaxis2.domain[0], picture.layout.yaxis2.domain[1]), abs=1e-4),
        pytest.approx((picture.layout.xaxis3.domain[0], picture.layout.yaxis3.domain[1]), abs=1e-4),
    ]
    assert {(label.yanchor, label.yshift >= 20) for label in labels} == {("bottom", True)}
    assert "Nobody trained the weights of full, one." in picture.description
    assert "Nobody" not in map_gallery(MAPS, title="Three").description
    with pytest.raises(ValueError, match="names of `maps`, got 'two'"):
        map_gallery(MAPS, title="Three", untrained=["two"])


def test_maps_stand_in_rows_of_so_many_columns():
    page = map_gallery(MAPS, title="Three", columns=2).layout
    (a, b), (c, d), (e, f) = page.xaxis.domain, page.xaxis2.domain, page.xaxis3.domain
    assert (a, b) == (e, f)
    assert b < c
    assert d == 1
    assert page.yaxis.domain == page.yaxis2.domain
    assert page.yaxis3.domain[1] < page.yaxis.domain[0]
    assert page.yaxis.range == (2.5, -0.5)


def test_the_table_tells_distances_and_diagonals():
    picture = map_gallery(MAPS, title="Three")
    first, full, one = picture.rows
    assert first == {
        "map": "a <b>", "largest": 4.0, "mean distance (tokens)": 0.18, "of tokens to come": "0 %",
        "same along each diagonal": "yes",
    }  # fmt: skip
    assert full["of tokens to come"] == "33 %"
    assert full["same along each diagonal"] == "yes"
    assert one["same along each diagonal"] == "no"
    assert "a <b>, full: the same along each diagonal" in picture.description
    assert "None of them is the same" in map_gallery({"one": MAPS["one"]}, title="One").description


def test_what_has_no_room_is_refused():
    with pytest.raises(ValueError, match=r"the map 'b' should be of 3 tokens .* got 2"):
        map_gallery({"a": np.eye(3), "b": np.eye(2)}, title="T")
    with pytest.raises(ValueError, match=r"as many rows as columns, at most 64, got 2 × 3"):
        map_gallery({"a": np.ones((2, 3))}, title="T")
    with pytest.raises(ValueError, match=r"at most 64, got 65 × 65"):
        map_gallery({"a": np.eye(65)}, title="T")
    with pytest.raises(ValueError, match="at most 24 maps have room, got 25"):
        map_gallery({str(at): np.eye(2) for at in range(25)}, title="T")


def test_long_names_are_shortened_and_the_picture_stays_small():
    long = "a mechanism with a very long name indeed"
    maps = {f"{long} {at}": np.random.default_rng(at).random((64, 64)) for at in range(12)}
    picture = map_gallery(maps, title="Many")
    assert picture.layout.annotations[0].text.endswith("…")
    assert picture.rows[0]["map"] == f"{long} 0"
    names = ["H3: shift, state space and gates", "FNet: Fourier", "Long range (Lite Transformer)"]
    notes = map_gallery({name: np.eye(3) for name in names}, title="Names").layout.annotations
    assert [note.text for note in notes[:3]] == ["H3", "FNet: Fourier", "Long range"]
    assert len(json.dumps(picture._repr_mimebundle_())) < 400_000
