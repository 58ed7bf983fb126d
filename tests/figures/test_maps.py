import json
import re
import zlib
from base64 import b64decode
from urllib.parse import unquote

import numpy as np
import plotly
import pytest
import torch

from attnlab.figures.maps import film, head_grid, heat_map
from attnlab.figures.picture import PLOTLY
from attnlab.figures.theme import CIVIDIS, blend, rgb

writes_base64 = pytest.mark.skipif(
    int(plotly.__version__.split(".")[0]) < 6, reason="plotly 5 writes arrays as lists of numbers"
)
TRIANGLE = np.tril(np.ones((7, 7), bool))


def size(picture):
    """Bytes of a picture in a notebook file, which puts each element of a list on its own line."""
    outputs = {"data": picture._repr_mimebundle_(), "more": picture.folded()}
    return len(json.dumps(outputs, indent=1, ensure_ascii=False).encode())


def test_a_map_holds_the_weights_queries_on_rows_keys_on_columns(attention, drawn):
    weights = attention(3, 7)
    picture = heat_map(weights, list("abc"), list("tuvwxyz"), title="Three look at seven")
    np.testing.assert_allclose(drawn(picture)["z"], weights, rtol=1e-6)
    layout = picture.layout
    assert layout.xaxis.title.text == "keys"
    assert layout.yaxis.title.text == "queries"
    assert layout.xaxis.range == (-0.5, 6.5)
    assert layout.yaxis.range == (2.5, -0.5)
    assert layout.xaxis.ticktext == tuple("tuvwxyz")
    assert layout.yaxis.ticktext == tuple("abc")
    assert layout.coloraxis.cmin == 0
    assert layout.coloraxis.cmax == 1
    assert layout.title.text == "<b>Three look at seven</b>"


def test_the_words_of_a_map_follow_its_axes(attention, drawn):
    picture = heat_map(attention(3, 7), title="Sizes", axes=("block <size>", "character"))
    assert picture.layout.yaxis.title.text == "block &#60;size&#62;"
    assert picture.layout.xaxis.title.text == "character"
    assert drawn(picture)["hovertemplate"].startswith(
        "block &#60;size&#62; %{y}<br>character %{x}<br>"
    )
    assert "3 rows (block <size>) by 7 columns (character)" in picture.description
    assert "at block <size> " in picture.description
    assert list(picture.rows[0])[:2] == ["block <size>", "strongest character"]
    words = picture.description + str(picture.rows) + str(picture.to_dict())
    assert "quer" not in words
    assert "key" not in words.replace("strongest key", "")
    for wrong in ("ab", ("a",), ("a", 1), None):
        with pytest.raises(TypeError, match="axes"):
            heat_map(attention(3, 7), title="Sizes", axes=wrong)


def test_keys_are_the_queries_where_the_map_is_square(attention):
    picture = heat_map(attention(3, 3), list("abc"), title="Square")
    assert picture.layout.xaxis.ticktext == tuple("abc")


def test_repeated_tokens_stay_apart(attention):
    picture = heat_map(attention(5, 5), ["a"] * 5, title="Twins")
    assert len(set(picture.layout.xaxis.categoryarray)) == 5


def test_the_scale_can_be_shared_between_maps(attention):
    picture = heat_map(attention(3, 5), title="Shared", largest=1.0)
    assert picture.layout.coloraxis.cmax == 1
    assert picture.layout.coloraxis.colorbar.ticktext[-1] == "1.0"


def bar(picture):
    return picture.layout.coloraxis.colorbar.title.text.removeprefix("<br>")


def colour_of(axis, value):
    """The colour of a value, as plotly draws it: linear between the stops."""
    share = (value - axis.cmin) / (axis.cmax - axis.cmin)
    stops = [stop for stop, _ in axis.colorscale]
    channels = np.array([rgb(colour) for _, colour in axis.colorscale])
    return [np.interp(share, stops, channels[:, at]) for at in range(3)]


@pytest.mark.parametrize("unit", [None, 10_000])
def test_all_weights_of_attention_have_the_square_root_from_0_to_1(unit, attention):
    picture = head_grid(attention(2, 3, 5, 7), title="Grid")
    if unit:
        picture = heat_map(attention(130, 130), title="One", largest=None)
    axis = picture.layout.coloraxis
    assert (axis.cmin, axis.cmax) == (0, unit or 1)
    for weight in (0, 0.01, 0.0625, 0.3, 1):
        wanted = rgb(blend(CIVIDIS, weight**0.5))
        np.testing.assert_allclose(colour_of(axis, weight * (unit or 1)), wanted, atol=3)
    assert bar(picture).replace("<br>", " ") == "attention weight, square root"


def test_what_departs_from_the_scale_is_said_at_its_bar(attention):
    weights = attention(5, 7)
    half = bar(heat_map(weights, title="", largest=0.5))
    assert half.replace("<br>", " ") == "attention weight up to 0.5, square root"
    assert bar(heat_map(3 * weights / weights.max(), title="")).replace("<br>", " ") == (
        "attention weight up to 3, square root"
    )
    assert bar(heat_map(weights, title="", quantity="share")) == "share"
    assert bar(heat_map(weights, title="", root=False)) == "attention weight, linear"
    mean = heat_map(weights, title="", quantity="mean weight", root=True)
    assert bar(mean) == "mean weight, square root"
    assert mean.layout.coloraxis.cmax == 1
    assert bar(heat_map(weights - 0.5, title="")) == "attention weight"  # in two colours
    linear = heat_map(weights, title="", quantity="share").layout.coloraxis
    assert linear.cmax == pytest.approx(weights.max())
    np.testing.assert_allclose(
        colour_of(linear, linear.cmax / 4), rgb(blend(CIVIDIS, 0.25)), atol=1
    )


def pixels(still):
    """The levels of the first bitmap of a still, one list for each row."""
    png = b64decode(re.search(r'href="data:image/png;base64,([^"]+)"', still)[1])
    width = int.from_bytes(png[16:20], "big")
    rows = zlib.decompress(png[png.index(b"IDAT") + 4 :])
    return (np.frombuffer(rows, np.uint8).reshape(-1, width + 1)[:, 1:].astype(int) - 1).tolist()


def frames(picture):
    """The places (row, column) of framed cells in each image."""
    found = [
        re.findall(r'<rect x="(\S+)" y="(\S+)"', unquote(i.source)) for i in picture.layout.images
    ]
    return [[(int(float(y)), int(float(x))) for x, y in each] for each in found]


def test_the_only_key_of_a_query_is_framed_and_said(attention):
    picture = heat_map(attention(7, 7, causal=True), title="Causal", mask=TRIANGLE)
    assert frames(picture) == [[(0, 0)]]
    assert [note.text for note in picture.layout.annotations] == [
        "hatched: the mask does not allow it",
        "framed: the only key of its query, always 1",
    ]
    grid = head_grid(attention(2, 3, 7, 7, causal=True), title="Grid", mask=TRIANGLE)
    assert frames(grid) == [[(0, 0)]] * 6
    assert "framed: only key, always 1" in grid.layout.annotations[-1].text
    covered = unquote(picture.layout.images[0].source)
    assert '<path d="M-0.02 -0.02h1.04v1.04h-1.04z" fill=' in covered  # no rim of the cell is left
    moving = film(np.stack([attention(7, 7, causal=True)] * 2), [0, 1], title="F", mask=TRIANGLE)
    assert frames(moving) == [[(0, 0)]]


def test_only_what_must_be_1_is_framed(attention):
    weights = attention(7, 7, causal=True)
    for given, mask, quantity in (
        (weights, None, "attention weight"),  # nobody says what is allowed
        (weights, TRIANGLE, "loss"),
        (weights * 0.5, TRIANGLE, "attention weight"),  # it is not 1
        (weights[:, :1] * 0 + 1, np.ones((7, 1), bool), "attention weight"),  # there is one key
    ):
        picture = heat_map(given, title="", mask=mask, quantity=quantity)
        assert not any(frames(picture))
        assert not any("framed" in note.text for note in picture.layout.annotations)
    weights[0, 3] = 0.25  # a leak
    leaking = heat_map(weights, title="", mask=TRIANGLE)
    assert frames(leaking) == [[]]


def test_a_film_frames_what_is_1_at_every_step(attention):
    weights = np.stack([attention(7, 7, causal=True, seed=seed) for seed in range(2)])
    weights[0, 0, 0] = 0.3
    assert not any(frames(film(weights, [0, 1], title="F", mask=TRIANGLE)))
    weights[0, 0] = 0, 0, 0, 1, 0, 0, 0  # a leak at the first step alone is not hatched
    picture = film(weights, [0, 1], title="F", mask=TRIANGLE)
    assert frames(picture) == [[]]
    outline = unquote(picture.layout.images[0].source).split('<path d="M1 0')[1]
    assert outline.startswith("h2v1h-2zM4 0h3v1h-3z")


def test_a_leak_into_a_row_without_any_key_is_drawn(attention):
    mask = TRIANGLE.copy()
    mask[3] = False
    weights = attention(7, 7, causal=True)
    weights[3] = np.eye(7)[5]
    for picture in (
        heat_map(weights, title="", mask=mask),
        head_grid(weights[None, None], title="", mask=mask),
        film(np.stack([weights] * 2), [0, 1], title="", mask=mask),
    ):
        assert frames(picture) == [[(0, 0)]]


@pytest.mark.filterwarnings("error")
def test_a_mask_that_allows_nothing_gives_no_warning():
    nothing = np.zeros((130, 130), bool)
    zeros = nothing * 0.0
    heat_map(zeros, title="", mask=nothing).svg()
    head_grid(zeros[None, None], title="", mask=nothing).svg()
    film(np.stack([zeros, zeros]), [0, 1], title="", mask=nothing).svg()


def test_a_film_says_at_which_steps_nobody_trained(attention):
    weights = np.stack([attention(5, 5, seed=seed) for seed in range(2)])
    picture = film(weights, ["before", "after"], title="F", untrained=["before"])
    (slider,) = picture.layout.sliders
    assert [stop.label for stop in slider.steps] == ["before · untrained", "after"]
    assert [stop.args[0][0] for stop in slider.steps] == ["before", "after"]
    assert "Nobody trained the weights at training step before." in picture.description
    assert "before · untrained" in picture._repr_mimebundle_()["text/html"]
    picture = film(weights, [0, 1], title="F", untrained=True)
    assert "untrained" in [note.text for note in picture.layout.annotations]
    assert "Nobody trained these weights." in picture.description
    with pytest.raises(ValueError, match="`untrained` should hold some of `steps`, got 7"):
        film(weights, [0, 1], title="F", untrained=[7])


def test_what_nobody_trained_is_labelled_and_said(attention):
    for draw, shape in ((heat_map, (5, 7)), (head_grid, (2, 3, 5, 7))):
        for untrained in (True, False):
            picture = draw(attention(*shape), title="Fresh", untrained=untrained)
            texts = [note.text for note in picture.layout.annotations]
            assert ("untrained" in texts) is untrained
            assert ("Nobody trained these weights." in picture.description) is untrained
            assert (">untrained<" in picture._repr_mimebundle_()["text/html"]) is untrained
        with pytest.raises(TypeError, match="`untrained` should be True or False"):
            draw(attention(*shape), title="Fresh", untrained="yes")


def test_hatching_covers_what_the_mask_forbids_and_nothing_else(attention):
    picture = heat_map(attention(7, 7, causal=True), title="Causal", mask=TRIANGLE)
    (image,) = picture.layout.images
    assert (image.x, image.y, image.sizex, image.sizey) == (-0.5, -0.5, 7, 7)
    assert image.layer == "above"
    path = unquote(image.source).split('<path d="M1 0')[1]
    assert path.startswith("h6v1h-6zM2 1h5v1h-5z")
    assert "21 of 49 pairs are hatched" in picture.description
    assert not heat_map(attention(7, 7), title="No mask").layout.images


def test_a_leak_is_drawn_as_weight_not_hidden(attention):
    weights = attention(7, 7, causal=True)
    weights[2, 5] = 0.25
    picture = heat_map(weights, title="A leak", mask=TRIANGLE)
    assert "20 of 49 pairs are hatched" in picture.description


def test_signed_values_get_a_scale_around_zero():
    picture = heat_map([[-2.0, 1.0], [0.5, 0.0]], title="Scores", quantity="score")
    assert (picture.layout.coloraxis.cmin, picture.layout.coloraxis.cmax) == (-2, 2)
    assert picture.layout.coloraxis.colorscale[0][1] == "#0072b2"
    assert "Smallest: -2" in picture.description


def test_hostile_tokens_do_nothing_in_any_output(attention):
    token = "<script>alert(1)</script>"
    picture = heat_map(attention(2, 2), [token, "\n<b>&amp;"], title="<img src=x>")
    bundle = picture._repr_mimebundle_()
    for text in (bundle["text/html"], picture.folded(), json.dumps(bundle[PLOTLY])):
        assert "<script" not in text
        assert "<img" not in text
    assert "&lt;script&gt;" in picture.table()


def test_more_than_forty_tokens_thin_the_ticks_and_keep_all_names(attention):
    picture = heat_map(attention(43, 97), [f"q{i}" for i in range(43)], title="Long")
    assert len(picture.layout.yaxis.ticktext) == 22
    assert picture.layout.yaxis.ticktext[1] == "2: q2"
    assert len(picture.layout.xaxis.tickvals) <= 40
    assert len(picture.layout.yaxis.categoryarray) == 43


def test_the_description_says_what_is_largest_and_the_table_what_is_strongest():
    weights = [[0.1, 0.6, 0.3], [0.9, 0.05, 0.05]]
    picture = heat_map(weights, ["il", "est"], ["he", "is", "\n"], title="Alignment")
    assert picture.description == (
        "Alignment. Heat map of attention weight: 2 queries (rows) by 3 keys (columns). "
        "Largest: 0.9, from query est (position 1) to key he (position 0)."
    )
    assert picture.rows[0] == {
        "query": "il (position 0)",
        "strongest key": "is (position 1): 0.600",
        "second": "↵ (position 2): 0.300",
        "third": "he (position 0): 0.100",
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tensors_are_taken_whatever_they_are(dtype):
    weights = torch.full((2, 3), 0.5, dtype=dtype, requires_grad=True)
    assert heat_map(weights, title="Tensor", mask=torch.ones(2, 3, dtype=torch.bool))


def test_the_grid_holds_every_head_on_one_scale(attention, drawn):
    weights = attention(2, 3, 5, 7)
    picture = head_grid(weights, title="All heads")
    assert len(picture.data) == 6
    trace = drawn(picture, 5)
    assert (trace["xaxis"], trace["yaxis"]) == ("x3", "y2")
    assert trace["name"] == "layer 1, head 2"
    assert "layer 1, head 2" in trace["hovertemplate"]
    np.testing.assert_allclose(trace["z"], weights[1, 2], rtol=1e-6)
    assert {data.coloraxis for data in picture.data} == {"coloraxis"}
    assert picture.layout.coloraxis.cmax == 1
    assert [note.text for note in picture.layout.annotations[:5]] == [
        *("head 0", "head 1", "head 2"),
        *("layer 0", "layer 1"),
    ]
    tops = [picture.layout[name].domain for name in ("yaxis", "yaxis2")]
    assert tops[0][0] > tops[1][1]
    assert len(picture.rows) == 6


def test_many_weights_are_stored_in_two_bytes_and_none_above_zero_becomes_zero(drawn):
    weights = np.full((1, 1, 130, 200), 0.005)
    assert drawn(head_grid(weights, title="Even"))["z"].dtype == np.uint16
    weights[0, 0, 0, :4] = 1, 0, 1e-9, 1
    trace = drawn(head_grid(weights, title="Nearly even"))
    assert trace["z"][0, :5].tolist() == [10_000, 0, 1, 10_000, 50]
    assert "/ 10,000" in trace["hovertemplate"]
    trace = drawn(head_grid(weights / 1000, title="Finer"))
    assert trace["z"][0, :2].tolist() == [10_000, 0]
    assert "/ 10,000,000" in trace["hovertemplate"]


def test_even_weights_of_many_tokens_are_seen(drawn):
    """Row 200 has weights of 1/201, which is 7 of 100 under the square root."""
    causal = np.tril(np.ones((256, 256)))
    picture = heat_map(causal / causal.sum(1, keepdims=True), title="", mask=causal > 0)
    axis, last = picture.layout.coloraxis, drawn(picture)["z"][200, 0]
    wanted = rgb(blend(CIVIDIS, 201**-0.5))
    np.testing.assert_allclose(colour_of(axis, last), wanted, atol=2)


def test_the_still_of_a_map_has_level_0_for_zero_alone():
    still = heat_map([[0.0, 1e-9, 1e-4, 0.0049, 1.0]], title="").svg()
    levels = pixels(still)[0]
    assert levels[0] == 0
    assert levels[1] == 1
    assert 1 <= levels[2] < levels[3]
    assert levels[3] == pytest.approx(254 * 0.07, abs=1)
    assert levels[4] == 254


def test_values_above_the_end_of_the_scale_are_not_changed(drawn):
    picture = head_grid(np.full((1, 1, 2, 3), 0.9), title="Cut", largest=0.5)
    np.testing.assert_allclose(drawn(picture)["z"], 0.9)
    assert picture.layout.coloraxis.cmax == 0.5
    assert "on one colour scale up to 0.5." in picture.description


def test_the_grid_says_how_far_each_head_looks_back():
    previous = np.eye(5, k=-1)[None, None]
    previous[0, 0, 0, 0] = 1
    row = head_grid(previous, title="One back").rows[0]
    assert row["mean attended distance (tokens)"] == pytest.approx(0.8)
    assert row["mean of each query's largest weight"] == 1


@writes_base64
@pytest.mark.parametrize("causal", [False, True])
def test_a_grid_is_light(attention, causal):
    mask = np.tril(np.ones((64, 64), bool)) if causal else None
    picture = head_grid(
        attention(4, 4, 64, 64, causal=causal), ["token"] * 64, title="Light", mask=mask
    )
    figure = json.dumps(picture._repr_mimebundle_()[PLOTLY], indent=1)
    assert len(figure) < 240_000
    assert size(picture) < 360_000


@writes_base64
def test_one_map_is_light(attention):
    assert size(heat_map(attention(40, 40), ["token"] * 40, title="Light")) < 60_000
    assert size(heat_map(attention(257, 257), title="Light")) < 300_000


def test_a_film_has_a_frame_a_stop_and_a_row_per_step(attention, drawn):
    weights = np.stack([attention(5, 5, seed=seed) for seed in range(3)])
    picture = film(weights, [0, 50, 100], title="It learns")
    assert [frame.name for frame in picture.frames] == ["0", "50", "100"]
    (slider,) = picture.layout.sliders
    assert [stop.label for stop in slider.steps] == ["0", "50", "100"]
    assert [stop.args[0][0] for stop in slider.steps] == ["0", "50", "100"]
    assert slider.active == 2
    np.testing.assert_allclose(drawn(picture)["z"], weights[2], rtol=1e-6)
    np.testing.assert_allclose(picture.frames[0].data[0].z, weights[0], rtol=1e-6)
    assert picture.layout.coloraxis.cmax == 1
    assert [row["training step"] for row in picture.rows] == [0, 50, 100]
    assert slider.currentvalue.prefix == "training step "


def test_a_film_may_run_along_something_else(attention):
    weights = np.stack([attention(5, 5, seed=seed) for seed in range(2)])
    picture = film(weights, [0, 0.5], title="Cooler", along="scale <c>")
    assert picture.layout.sliders[0].currentvalue.prefix == "scale &#60;c&#62; "
    assert "from scale <c> 0 to scale <c> 0.5" in picture.description
    assert [row["scale <c>"] for row in picture.rows] == [0, 0.5]
    still = picture._repr_mimebundle_()["text/html"]
    assert "<label>scale &#60;c&#62; <input" in still
    assert "training" not in picture.to_json() + picture.description + still


def test_a_film_may_show_something_else_than_weights(attention):
    weights = np.stack([attention(5, 5, seed=seed) for seed in range(2)])
    picture = film(weights, [0, 1], title="Counts", quantity="times seen")
    assert picture.layout.coloraxis.colorbar.title.text == "<br>times seen"
    assert "times seen" in picture.data[0].hovertemplate
    assert "attention weight" not in picture.to_json()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: heat_map(np.ones((2, 3, 5)), title=""), "should have 2 axes .*weights\\[0\\]"),
        (lambda: heat_map(np.ones(5), title=""), "should have 2 axes \\(n, m\\), got 1"),
        (lambda: heat_map(np.ones((0, 5)), title=""), "is empty"),
        (lambda: heat_map([[1.0], [1.0, 2.0]], title=""), "ragged"),
        (lambda: heat_map([[np.nan, 1.0]], title=""), "1 values that are NaN .* at \\(0, 0\\)"),
        (lambda: heat_map([[-np.inf]], title=""), "through `mask`"),
        (lambda: heat_map(np.ones((2, 3)), ["a"], title=""), "1 labels for 2 queries"),
        (lambda: heat_map(np.ones((2, 3)), None, list("ab"), title=""), "2 labels for 3 keys"),
        (lambda: heat_map(np.ones((2, 3)), mask=TRIANGLE, title=""), "shape \\(2, 3\\), got"),
        (lambda: heat_map(np.ones((2, 3)), largest=0, title=""), "above 0, got 0"),
        (lambda: heat_map(np.ones((513, 2)), title=""), "at most 512"),
        (lambda: head_grid(np.ones((3, 5, 7)), title=""), "4 axes \\(layers, heads, n, m\\)"),
        (lambda: head_grid(np.ones((12, 12, 64, 64)), title=""), "keep a notebook small"),
        (lambda: film(np.ones((2, 3, 3)), [1], title=""), "1 labels for 2 maps"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_wrong_kinds_are_answered_with_a_sentence():
    with pytest.raises(TypeError, match="should hold numbers"):
        heat_map([["a", "b"]], title="")
    with pytest.raises(TypeError, match="should be bool"):
        heat_map([[1.0]], mask=[[0.0]], title="")
    with pytest.raises(TypeError, match="should be a list, got 'abc'"):
        heat_map(np.ones((3, 3)), "abc", title="")


def test_lines_part_neighbours_of_different_groups(attention):
    groups = ([0, 0, 2], [5, 1, 1, 1, 1, 1, -1])
    picture = heat_map(attention(3, 7), title="Groups", groups=groups)
    found = {(line.x0, line.y0, line.x1, line.y1) for line in picture.layout.shapes}
    assert found == {(-0.5, 1.5, 6.5, 1.5), (0.5, -0.5, 0.5, 2.5), (5.5, -0.5, 5.5, 2.5)}
    assert len(picture.layout.shapes) == 3
    assert "NaN" not in picture.svg()
    assert heat_map(attention(3, 7), title="None").layout.shapes == ()


@pytest.mark.parametrize(
    ("groups", "error", "words"),
    [
        (([0, 1], [0] * 7), ValueError, "3 groups of rows and 7 of columns, got 2 and 7"),
        ([0, 1, 1], TypeError, "two lists"),
        (3, TypeError, "two lists"),
        ((list("abc"), [0] * 7), TypeError, "`groups` should hold numbers"),
    ],
)
def test_groups_that_do_not_fit_are_refused(attention, groups, error, words):
    with pytest.raises(error, match=words):
        heat_map(attention(3, 7), title="Groups", groups=groups)
