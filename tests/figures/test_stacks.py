"""Stacks of blocks as SVG: what stands where, what is said in words, what is refused."""

from typing import Any
from xml.etree import ElementTree

import pytest

from attnlab.figures.stacks import FILLS, draw_stacks
from attnlab.figures.theme import DARK, LIGHT, contrast
from attnlab.tasks.blocks import COLOURS

PANELS = {"before": [["red", "green"], ["blue"], []], "after": [[], ["blue", "red"], ["green"]]}
_SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str) -> tuple[list[Any], dict[str, list[tuple[float, float]]]]:
    """The lines of the table, and for each colour the corners (x, y) of its blocks."""
    root = ElementTree.fromstring(svg)
    names = {fill: name for name, fill in FILLS.items()}
    blocks: dict[str, list[tuple[float, float]]] = {}
    for one in root.iter(f"{_SVG}rect"):
        if (name := names.get(one.get("fill"))) is not None:
            blocks.setdefault(name, []).append((float(one.get("x")), float(one.get("y"))))
    return list(root.iter(f"{_SVG}line")), blocks


def test_blocks_stand_on_each_other_and_on_their_places() -> None:
    table, blocks = drawn(draw_stacks(PANELS, title="A step").svg())
    places = [float(line.get("x1")) for line in table]
    assert places == sorted(places)
    assert len(places) == 6
    floor = float(table[0].get("y1"))
    (red, red_after), (green, green_after), (blue, blue_after) = (
        blocks[name] for name in ("red", "green", "blue")
    )
    high = floor - red[1]
    assert high > 20
    assert (red[0], green) == (places[0], (places[0], floor - 2 * high))
    assert blue == (places[1], floor - high)
    assert blue_after == (places[4], floor - high)
    assert red_after == (places[4], floor - 2 * high)
    assert green_after == (places[5], floor - high)


def test_a_fourth_panel_stands_in_the_next_row() -> None:
    one = draw_stacks({"a": [["red"]]}).svg()
    four = draw_stacks({name: [["red"]] for name in "abcd"}).svg()
    (x, y), _, _, last = drawn(four)[1]["red"]
    assert last[0] == x
    assert last[1] > y + 40
    assert float(ElementTree.fromstring(four).get("height")) > last[1]
    assert drawn(one)[1] == {"red": [(drawn(one)[1]["red"][0])]}


def test_every_colour_of_blocks_bears_its_name_in_letters_that_can_be_read() -> None:
    assert set(COLOURS) == set(FILLS)
    picture = draw_stacks({"all": [[name] for name in COLOURS]}).svg()
    for name, fill in FILLS.items():
        assert f">{name}</text>" in picture
        assert contrast(fill, "#1b1f24") > 7


def test_it_is_described_in_words_and_follows_the_page() -> None:
    drawing = draw_stacks(PANELS, title="A step", theme="auto")
    assert drawing.description == (
        "A step. before: (red under green), (blue), (). after: (), (blue under red), (green)."
    )
    assert repr(drawing) == drawing.description
    page = drawing._repr_html_()
    assert f'alt="{drawing.description}"' in page
    assert page.count("base64") == 2
    assert f'fill="{LIGHT.paper}"' in drawing._repr_svg_()
    assert f'fill="{DARK.paper}"' in draw_stacks(PANELS, theme="dark").svg()


@pytest.mark.parametrize(
    ("panels", "sentence"),
    [
        ({}, "`panels` is empty: give at least one entry"),
        ([["red"]], "`panels` should map names to values"),
        ({"a": "red"}, "`a` should be a list"),
        ({"a": ["red"]}, "`a` should be a list"),
        ({"a": [[1]]}, "`a` should hold texts"),
        ({"a": []}, "'a' should have 1 to 12 places, got 0"),
        ({"a": [["rde"]]}, "no colour 'rde'; did you mean 'red'"),
        ({str(n): [[]] for n in range(13)}, "at most 12 panels can be seen, got 13"),
    ],
)
def test_what_are_no_stacks_is_refused(panels: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        draw_stacks(panels)
