"""Graphs as SVG: one line for each pair, colours by one scale, words and refusals."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from attnlab.figures.graphs import draw_graph
from attnlab.figures.theme import DARK, GROUPS, LIGHT, SIGNED
from attnlab.structures.graph import Graph

PATH = Graph(3, [(0, 1), (2, 2), (1, 2)]).both_ways()
PLACES = [(0, 0), (1, 5), (2, 0)]


def parts(page: str, name: str) -> list[Any]:
    return list(ElementTree.fromstring(page).iter("{http://www.w3.org/2000/svg}" + name))


def test_a_line_for_each_pair_and_a_dot_for_each_node() -> None:
    drawing = draw_graph(PATH, PLACES, {"a": [0, 1, -2], "b": [0, 0, 0.5]}, title="A path")
    page = drawing.svg()
    lines = parts(page, "line")
    assert len(lines) == 4  # two pairs in two panels; the loop is left out
    first = lines[0]
    assert float(first.get("x1")) < float(first.get("x2"))
    assert float(first.get("y1")) > float(first.get("y2"))  # up is up
    dots = [each for each in parts(page, "circle") if each.get("fill") != LIGHT.quiet]
    assert [each.get("fill") for each in dots[:3]] == [SIGNED[2], SIGNED[3], SIGNED[0]]
    assert dots[5].get("fill") not in (SIGNED[2], SIGNED[4])  # a quarter of the largest number
    assert [each.text for each in parts(page, "text")][1:5] == ["a", "0", "1", "2"]
    wide, high = (float(ElementTree.fromstring(page).get(side)) for side in ("width", "height"))
    for dot in dots:
        assert 10 < float(dot.get("cx")) < wide - 10
        assert 10 < float(dot.get("cy")) < high - 10


def test_panels_beyond_four_stand_below() -> None:
    panels = {f"panel {number}": [number, 1, 2] for number in range(6)}
    page = draw_graph(PATH, PLACES, panels, title="Six").svg()
    heads = [each for each in parts(page, "text") if each.text.startswith("panel")]
    assert [len({each.get("y") for each in heads[:4]}), len({each.get("y") for each in heads})] == [
        1,
        2,
    ]


def test_a_graph_alone_is_drawn_larger() -> None:
    wide = [
        float(
            ElementTree.fromstring(draw_graph(PATH, PLACES, panels, title="T").svg()).get("width")
        )
        for panels in ({"a": [0, 0, 1]}, {"a": [0, 0, 1], "b": [0, 0, 1]})
    ]
    assert wide == [444, 516]


def test_it_is_described_in_words_and_escaped() -> None:
    drawing = draw_graph(PATH, PLACES, {"<b>": [1, 0.5, -1]}, names=["a", "<i>", "c"], title="T")
    assert drawing.description == (
        "T. A graph of 3 nodes and 2 lines. <b>: from -1 at c to 1 at a."
    )
    page = drawing._repr_html_()
    assert "<b>" not in page
    assert "<i>" not in page


def test_groups_have_the_colours_of_the_widget_and_are_listed() -> None:
    drawing = draw_graph(PATH, PLACES, {"club": ["x", "<y>", "x"]}, title="T")
    assert repr(drawing).endswith("lines. club: <y> at 1; x at 0, 2.")
    fills = [each.get("fill") for each in parts(drawing.svg(), "circle")]
    one, two = GROUPS[:2]
    assert [fill for fill in fills if fill in GROUPS] == [one, two, one, one, two]  # and the legend
    assert "&lt;y&gt;" in drawing.svg()


@pytest.mark.parametrize(("theme", "look"), [("light", LIGHT), ("dark", DARK), ("auto", LIGHT)])
def test_the_picture_follows_the_theme(theme: str, look: Any) -> None:
    drawing = draw_graph(PATH, PLACES, {"a": [0, 0, 0]}, title="T", theme=theme)
    assert re.search(f'fill="{look.paper}"', drawing.svg())
    assert ("<style>" in drawing._repr_html_()) == (theme == "auto")
    assert drawing._repr_svg_() == drawing.svg()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([(0, 1)], PLACES, {"a": [0, 0, 0]}), "`graph` should be a Graph, got a list"),
        (
            (PATH, PLACES[:2], {"a": [0, 0, 0]}),
            r"`places` should have shape \(3, 2\), got \(2, 2\)",
        ),
        ((PATH, PLACES, {"a": [0, 0]}), "2 numbers for 'a', but there are 3 nodes"),
        ((Graph(201), [(0, 0)] * 201, {"a": [0] * 201}), "201 nodes; at most 200"),
        ((PATH, PLACES, {}), "panels"),
    ],
)
def test_what_cannot_be_drawn(arguments: tuple, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        draw_graph(*arguments, title="T")
