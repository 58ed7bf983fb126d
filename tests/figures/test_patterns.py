import json
import re
from base64 import b64decode
from math import isqrt
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from attnlab.core import patterns
from attnlab.core.patterns import causal, full, global_, local, per_head, random, strided
from attnlab.figures.patterns import density_curves, head_patterns, pattern_map, runs
from attnlab.figures.picture import PLOTLY, Picture
from attnlab.figures.receptive_field import receptive_field_film
from attnlab.figures.svg import png

SVG = "{http://www.w3.org/2000/svg}"


def overlay(picture, place=0):
    return unquote(picture.layout.images[place].source)


def bitmap(picture, place=0):
    found = re.search(r'href="data:image/png;base64,([^"]+)"', overlay(picture, place))
    return b64decode(found[1])


def size(picture):
    outputs = {"data": picture._repr_mimebundle_(), "more": picture.folded()}
    return len(json.dumps(outputs, indent=1, ensure_ascii=False).encode())


def four():
    return {
        "map": pattern_map(local(2).causal(), 13, title="A"),
        "heads": head_patterns(per_head(local(1), strided(3)), 11, title="B"),
        "reach": receptive_field_film(local(2), 13, layers=3, title="C"),
        "density": density_curves({"window": local(3)}, [17, 97], title="D"),
    }


NAMES = list(four())


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_a_picture_with_a_description_and_an_svg(name):
    picture = four()[name]
    assert isinstance(picture, Picture)
    assert picture.description.startswith("ABCD"[NAMES.index(name)] + ". ")
    assert picture.rows
    root = ElementTree.fromstring(picture.svg())
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert "ABCD"[NAMES.index(name)] in texts
    for axis in [key for key in picture.layout.to_plotly_json() if re.match("[xy]axis", key)]:
        assert picture.layout[axis].range is not None
    addresses = set(re.findall(r"https?://[\w./]+", str(picture._repr_mimebundle_())))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_the_bitmap_has_a_pixel_for_every_allowed_pair():
    pattern = (local(2) | global_([5])).causal()
    mask = pattern.dense(13).numpy()
    for drawn in (pattern, mask, torch.from_numpy(mask)):
        picture = pattern_map(drawn, 13, title="Cells")
        assert bitmap(picture) == png(np.where(mask, 0, -1), ["#0072b2"])


def test_blocks_are_hatched_where_empty_and_framed_where_full():
    picture = pattern_map(causal(), 12, block=4, title="Blocks")
    hatched = overlay(picture, 1).split('<path d="')[-1]
    assert hatched.startswith("M4 0h8v1h-8zM4 1h8v1h-8z")
    frames = re.findall(r"M([\d.]+) ([\d.]+)h", overlay(picture))
    assert [(round(float(x)), round(float(y))) for x, y in frames] == [(0, 4), (0, 8), (4, 8)]
    assert "Of 9 blocks of 4 positions 3 are full, 3 mixed and 3 empty." in picture.description
    assert "M4 0V12M0 4H12" in overlay(picture)
    assert "hatched: empty block" in picture.layout.annotations[0].text
    # plotly drops an image at the place of another
    assert len({(image.x, image.y) for image in picture.layout.images}) == 2


def test_a_last_block_may_be_shorter(drawn):
    picture = pattern_map(full(), 13, block=5, title="Rest")
    assert "9 are full" in picture.description
    numbers = drawn(picture)["customdata"]
    assert numbers[-1].tolist() == [10, 12, 10, 12, 9, 9]
    assert drawn(picture)["name"] == "full"


def test_pointing_at_a_block_says_what_it_is(drawn):
    picture = pattern_map(local(1) & ~local(0), 12, block=4, title="Hover")
    mixed, empty = drawn(picture), drawn(picture, 1)
    assert (mixed["name"], empty["name"]) == ("mixed", "empty")
    assert mixed["customdata"][0].tolist() == [0, 3, 0, 3, 6, 16]
    assert (mixed["x"][0], mixed["y"][0]) == (1.5, 1.5)
    assert "pairs" in mixed["hovertemplate"]


def test_the_description_names_masked_queries_and_the_rows_the_keys_of_each():
    picture = pattern_map(causal() & ~local(1), 5, title="Far past")
    assert "6 of 25 pairs may be attended to (24 %)" in picture.description
    assert "Positions 0–1 attend to nothing." in picture.description
    assert picture.rows[4] == {"query": 4, "keys attended to": 3, "which": "0–2"}
    assert picture.rows[0] == {"query": 0, "keys attended to": 0, "which": "none"}
    assert (
        "In words: (each position attends to itself and those before it) and (not"
        in picture.description
    )


def test_runs_of_places_are_short():
    assert runs([0, 3, 4, 5, 9]) == "0, 3–5, 9"
    assert runs([]) == ""


@pytest.mark.parametrize("count", range(1, 17))
def test_heads_fit_the_cell_of_a_notebook(count: int) -> None:
    """A window of 993 by 760 leaves 826 for the output of a cell."""
    heads = per_head(*(local(radius) for radius in range(count)))
    layout = head_patterns(heads, 24, title="Heads").layout
    assert layout.width <= 826
    assert layout.height <= 790


def test_heads_have_a_panel_each_with_name_and_share():
    picture = head_patterns(per_head(local(1), causal(), full()), 7, title="Three")
    notes = [note.text for note in picture.layout.annotations]
    assert notes[1:] == ["head 0 · 38.8 %", "head 1 · 57.1 %", "head 2 · 100 %"]
    assert [row["pairs"] for row in picture.rows] == [19, 28, 49]
    assert {(image.xref, image.yref) for image in picture.layout.images} == {
        *(("x", "y"), ("x2", "y2"), ("x3", "y3"))
    }
    named = head_patterns([local(1), full()], 7, names=["near", "<all>"], title="Two")
    assert named.layout.annotations[2].text == "&#60;all&#62; · 100 %"
    assert named.rows[1]["pattern"] == "<all>"
    assert head_patterns(local(1), 7, title="One").rows[0]["pattern"] == "head 0"


def test_the_reach_has_a_frame_per_layer_and_tells_the_first(drawn):
    picture = receptive_field_film(local(1), 7, layers=3, title="It spreads")
    assert [frame.name for frame in picture.frames] == ["1", "2", "3"]
    distance = np.abs(np.arange(7)[:, None] - np.arange(7))
    arrives = np.maximum(distance, 1)
    for layer, frame in enumerate(picture.frames, 1):
        shown = np.where(arrives <= layer, 4 - arrives, 0)
        np.testing.assert_array_equal(frame.data[0].z, shown)
    np.testing.assert_array_equal(drawn(picture)["z"], picture.frames[-1].data[0].z)
    assert picture.layout.sliders[0].currentvalue.prefix == "after layer "
    assert picture.layout.coloraxis.colorbar.ticktext == ("not yet", "3", "2", "1")
    assert picture.layout.coloraxis.colorbar.tickvals == (0, 1, 2, 3)
    assert picture.rows[1] == {
        "after layer": 2,
        "pairs connected": 29,
        "share": round(29 / 49, 4),
        "fewest inputs of an output": 3,
        "most": 5,
    }
    html = picture._repr_mimebundle_()["text/html"]
    assert html.count("data-frame=") == 3
    assert "<label>after layer <input" in html


@pytest.mark.parametrize(
    ("pattern", "layers", "words"),
    [
        (local(2), 2, "After 2 layers the receptive fields still grow."),
        (local(2), 4, "Everything is connected after 3 layers."),
        (full(), 1, "Everything is connected after 1 layer."),
        (local(2).causal(), 4, "Every output depends on its whole past after 3 layers."),
        (strided(3), 4, "After 1 layer more layers add nothing; some pairs stay unconnected."),
    ],
)
def test_the_reach_says_how_it_ends(pattern, layers, words):
    assert receptive_field_film(pattern, 7, layers=layers, title="End").description.endswith(words)


def test_layers_take_their_patterns_in_turn():
    axes = [patterns.axial((3, 5), 0), patterns.axial((3, 5), 1)]
    assert (
        "connected after 2 layers"
        in receptive_field_film(axes, 15, layers=3, title="Axes").description
    )
    alone = receptive_field_film(axes[0], 15, layers=3, title="One axis").description
    assert "some pairs stay unconnected" in alone


def test_without_the_residual_a_position_may_forget_itself():
    picture = receptive_field_film(~local(0), 3, layers=1, residual=False, title="Others")
    assert picture.rows[0]["pairs connected"] == 6


def test_density_follows_the_length():
    picture = density_curves(
        {"window": local(1), "√n": lambda n: local(isqrt(n)), "all": full()},
        [101, 1009],
        title="Sparse",
    )
    shares = {(row["series"].split("  ")[0], row["n"]): row for row in picture.rows}
    quantity = "share of the pairs that may be attended to"
    assert shares["window", 101][quantity] == pytest.approx((3 * 101 - 2) / 101**2)
    wide = (2 * 31 + 1) * 1009 - 31 * 32
    assert shares["√n", 1009][quantity] == pytest.approx(wide / 1009**2)
    assert "∝ n<sup>-1.00</sup>" in picture.data[0].name
    assert picture.data[2].name == "all  ∝ n<sup>0.00</sup>"


def test_patterns_stay_light():
    assert size(pattern_map((local(9) | random(5)), 257, title="Light")) < 90_000
    assert size(pattern_map(strided(8), 512, title="Light")) < 90_000
    heads = head_patterns(per_head(*(random(3, seed) for seed in range(8))), 64, title="Light")
    assert size(heads) < 160_000
    film = receptive_field_film((local(7) | strided(8)).causal(), 64, layers=4, title="Light")
    assert len(json.dumps(film._repr_mimebundle_()[PLOTLY], indent=1)) < 60_000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pattern_map(full(), 0, title=""), "1 to 512 positions, got 0"),
        (lambda: pattern_map(full(), 513, title=""), "1 to 512 positions, got 513"),
        (
            lambda: pattern_map(full(), 7, block=0, title=""),
            "`block` should be 1 to 512 positions, got 0",
        ),
        (lambda: pattern_map(np.ones((3, 5), bool), 3, title=""), "shape \\(3, 3\\), got"),
        (lambda: pattern_map(per_head(full(), causal()), 3, title=""), "head_patterns, or one"),
        (lambda: pattern_map(global_([9]), 7, title=""), "position 9 is outside of a sequence"),
        (lambda: head_patterns([], 7, title=""), "one to 16 patterns have room, got 0"),
        (lambda: head_patterns([full()] * 17, 7, title=""), "have room, got 17"),
        (lambda: head_patterns(full(), 7, names=["a", "b"], title=""), "2 names for 1 patterns"),
        (
            lambda: receptive_field_film(full(), 129, layers=2, title=""),
            "1 to 128 positions, got 129",
        ),
        (
            lambda: receptive_field_film(full(), 7, layers=33, title=""),
            "1 to 32 layers, got 33",
        ),
        (lambda: density_curves({}, [7], title=""), "`patterns` is empty"),
        (lambda: density_curves({"no": ~full()}, [7], title=""), "'no' allows no pair at n = 7"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
