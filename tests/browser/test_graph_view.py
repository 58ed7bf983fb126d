"""GraphView in JupyterLab and as a file: what is chosen, moved and reached there is Python's."""

import itertools
from typing import Any

import pytest
import torch
from attnlab_widgets.graph_view import GraphView

from attnlab.structures.graph import Graph
from tests.browser.widget_pages import (
    in_a_notebook,
    in_both,
    middle,
    pixels,
    said,
    saved,
    slide,
    told,
)
from tests.widgets.test_graph_view import modules

pytestmark = pytest.mark.browser

MAKE = """
import networkx as nx, torch
from attnlab_widgets.graph_view import GraphView

karate = nx.karate_club_graph()
mask = torch.from_numpy(nx.to_numpy_array(karate, weight=None)) > 0
scores = torch.randn(2, 3, 34, 34, generator=torch.Generator().manual_seed(0))
weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
names = ["<img src=x onerror=alert(1)>", *(f"member {i}" for i in range(1, 34))]
clubs = [karate.nodes[i]["club"] for i in karate]
graph = GraphView(karate, weights, labels=names, groups=clubs)
graph.save_html("graph.html", title="<Graph>")
graph
"""
ASK = """
import json
print(json.dumps({"said": graph.description(), "node": graph.node, "hops": graph.hops(),
                  "place": graph.positions[16], "order": graph.shown_order}))
"""


def begin(graph: Any) -> None:
    slide(graph, "depth", 0)
    graph.get_by_test_id("layer").select_option("0")
    graph.get_by_test_id("order").select_option("community")
    graph.get_by_test_id("node-0").focus()
    graph.page.keyboard.press("Escape")
    graph.get_by_test_id("summary").filter(has_text="34 nodes and 156 edges").wait_for()


notebook = in_a_notebook("graph_view", MAKE, ASK)
graph = in_both("graph-view", "graph.html", begin)
BOXES = """all => all.map(node => {
  const {left, top, right, bottom} = node.getBoundingClientRect();
  return [left, top, right, bottom, node.textContent];
})"""
PIXEL = """(canvas, place) => {
  const [x, y] = place.map(at => Math.round(at * canvas.width / canvas.clientWidth));
  return canvas.getContext('2d').getImageData(x, y, 1, 1).data.join();
}"""


def node_at(graph: Any, node: int) -> tuple[float, float]:
    return middle(graph.get_by_test_id(f"node-{node}").locator(".gv-dot"))


def test_pointing_shows_and_clicking_chooses(graph: Any, soon: Any, still: Any) -> None:
    still(graph)
    before = pixels(graph.locator("canvas.gv-edges"))
    graph.get_by_test_id("node-9").hover()
    readout = graph.get_by_test_id("readout")
    soon(readout.inner_text, lambda text: "“member 9” attends to “member" in text)
    soon(lambda: pixels(graph.locator("canvas.gv-edges")) == before, False)
    assert "34 nodes" in said(graph)
    graph.get_by_test_id("node-9").click()
    soon(lambda: said(graph), lambda text: "(mean of 3 heads) “member 9” attends to" in text)
    mean = said(graph)
    graph.get_by_test_id("head").select_option("2")
    soon(lambda: said(graph), lambda text: "(head 2) “member 9”" in text and text != mean)
    graph.get_by_test_id("head").select_option("")
    graph.get_by_test_id("node-0").click()
    soon(lambda: said(graph), lambda text: "“<img src=x onerror=alert(1)>”" in text)
    assert graph.locator("img").count() == 0
    assert "attends to 16 nodes, most to" in said(graph)


def test_keys_go_from_node_to_node(graph: Any, soon: Any) -> None:
    graph.get_by_test_id("node-33").focus()
    keys = graph.page.keyboard
    keys.press("Enter")
    soon(lambda: "“member 33” attends" in said(graph), True)
    x, _ = node_at(graph, 33)
    keys.press("ArrowRight")
    soon(lambda: "“member 33”" in said(graph).split("attends")[0], False)
    selected = graph.locator('[aria-selected="true"]')
    assert selected.evaluate("node => node === document.activeElement")
    assert selected.locator(".gv-dot").bounding_box()["x"] > x
    keys.press("Escape")
    soon(lambda: "34 nodes" in said(graph), True)
    assert selected.count() == 0


def test_the_receptive_field_grows(graph: Any, soon: Any) -> None:
    node = graph.get_by_test_id("node-16")
    node.click()
    slide(graph, "depth", 1)
    soon(
        lambda: said(graph), lambda text: "After 1 layer its receptive field holds 3 of 34" in text
    )
    legend = graph.get_by_test_id("legend")
    soon(legend.inner_text, lambda text: "1 layer: 2" in text and "not reached: 31" in text)
    hollow = graph.locator(".gv-far")
    assert hollow.count() == 31
    slide(graph, "depth", 2)
    soon(
        lambda: said(graph), lambda text: "After 2 layers its receptive field holds 6 of 34" in text
    )
    hop = graph.get_by_test_id("node-0")
    assert hop.get_attribute("data-hop") == "2"
    graph.get_by_test_id("play").click()
    soon(hollow.count, 0)
    soon(graph.get_by_test_id("play").inner_text, "Play")


def test_a_node_is_dragged_and_moved_by_keys(graph: Any, soon: Any, still: Any) -> None:
    still(graph)
    x, y = node_at(graph, 16)
    mouse = graph.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x - 20, y + 20)
    mouse.move(x - 60, y + 30, steps=3)
    mouse.up()
    soon(lambda: [round(b - a) for a, b in zip((x, y), node_at(graph, 16), strict=True)], [-60, 30])
    assert "34 nodes" in said(graph), "a dragged node is not chosen"
    graph.get_by_test_id("node-16").focus()
    graph.page.keyboard.press("Shift+ArrowRight")
    step = 0.03 * (graph.get_by_test_id("stage").bounding_box()["width"] - 40)
    soon(lambda: abs(node_at(graph, 16)[0] - (x - 60 + step)) < 1.5, True)
    mouse.move(*node_at(graph, 16))
    mouse.down()
    mouse.move(x - 10, y + 10)
    mouse.move(x, y, steps=3)
    mouse.up()


def test_the_map_is_read_ordered_and_clicked(graph: Any, soon: Any, still: Any) -> None:
    still(graph)
    canvas = graph.get_by_test_id("map")
    box = canvas.bounding_box()
    cell = (box["width"] - 11) / 34

    def at(row: int, column: int) -> dict[str, float]:
        return {"x": 11 + (column + 0.5) * cell, "y": 11 + (row + 0.5) * cell}

    by_community = pixels(graph.get_by_test_id("map"))
    graph.get_by_test_id("order").select_option("number")
    soon(lambda: pixels(graph.get_by_test_id("map")) != by_community, True)
    ground = canvas.evaluate(PIXEL, list(at(9, 10).values()))
    row = [canvas.evaluate(PIXEL, list(at(9, column).values())) for column in range(34)]
    assert [column for column in range(34) if row[column] != ground] == [2, 33]
    canvas.hover(position=at(9, 2))
    readout = graph.get_by_test_id("map-readout")
    soon(readout.inner_text, lambda text: text.startswith("“member 9” attends to “member 2”: 0."))
    canvas.hover(position=at(9, 10))
    soon(readout.inner_text, "No edge leads to “member 9” from “member 10”.")
    canvas.click(position=at(9, 10))
    soon(lambda: "“member 9” attends" in said(graph), True)
    canvas.focus()
    for key in ("ArrowDown", "ArrowLeft"):
        graph.page.keyboard.press(key)
    soon(readout.inner_text, "No edge leads to “member 10” from “member 9”.")
    graph.page.keyboard.press("Enter")
    soon(lambda: "“member 10” attends" in said(graph), True)


def test_tables_have_the_weights(graph: Any, soon: Any) -> None:
    graph.get_by_test_id("node-9").click()
    graph.get_by_test_id("as-tables").locator("summary").click()
    rows = graph.get_by_test_id("attends-table").locator("tbody tr")
    soon(rows.count, 2)
    weights = [float(text) for text in rows.locator("td:nth-child(3)").all_inner_texts()]
    assert weights == sorted(weights, reverse=True)
    assert abs(sum(weights) - 1) < 1e-3
    assert f"({weights[0]:.2f})" in said(graph)
    nodes = graph.get_by_test_id("nodes-table").locator("tbody tr")
    assert nodes.count() == 34
    groups = set(nodes.locator("td:nth-child(3)").all_inner_texts())
    assert groups == {"Mr. Hi", "Officer"}
    graph.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words_and_places(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("graph-view")
    widget.get_by_test_id("layer").select_option("1")
    widget.get_by_test_id("order").select_option("group")
    widget.get_by_test_id("node-16").focus()
    widget.page.keyboard.press("Enter")
    widget.page.keyboard.press("Shift+ArrowUp")
    slide(widget, "depth", 2)
    soon(lambda: said(widget), lambda text: text.startswith("In layer 1") and "After 2" in text)
    found = told(notebook, lambda now: now["said"] == said(widget))
    hops = [int(widget.get_by_test_id(f"node-{i}").get_attribute("data-hop")) for i in range(34)]
    assert found["hops"] == hops
    board = widget.get_by_test_id("stage").bounding_box()
    x, y = node_at(widget, 16)
    place = [
        (x - board["x"] - 20) / (board["width"] - 40),
        (y - board["y"] - 20) / (board["height"] - 40),
    ]
    assert found["place"] == pytest.approx(place, abs=0.01)


@pytest.mark.parametrize("wide", [700, 993])
def test_long_names_of_many_nodes_do_not_meet(
    tmp_path: Any, page: Any, soon: Any, wide: int
) -> None:
    path = modules().save_html(tmp_path / "modules.html")
    widget = saved(page, path, "graph-view", wide=wide + 32)
    stage = widget.get_by_test_id("stage").bounding_box()
    names = widget.locator(".gv-name")
    for node in (None, 5, 40, 77):
        if node is not None:
            widget.get_by_test_id(f"node-{node}").focus()
            page.keyboard.press("Enter")
            soon(lambda node=node: f"module_{node:03d}" in said(widget).split("attends")[0], True)
        boxes = names.evaluate_all(BOXES)
        assert len(boxes) >= (5 if node is None else 1)
        assert node is None or any(f"module_{node:03d}" in box[4] for box in boxes)
        assert node is None or len(boxes) <= 20, "the names of its neighbours alone"
        for left, top, right, bottom, _ in boxes:
            assert left >= stage["x"] - 1
            assert right <= stage["x"] + stage["width"] + 1
            assert top >= stage["y"] - 3
            assert bottom <= stage["y"] + stage["height"] + 3
        for (a, b, c, d, _), (e, f, g, h, _) in itertools.combinations(boxes, 2):
            assert not (a < g - 1 and e < c - 1 and b < h - 2 and f < d - 2)


def test_pointing_does_not_draw_all_nodes_again(tmp_path: Any, page: Any, soon: Any) -> None:
    path = modules(300).save_html(tmp_path / "many.html")
    widget = saved(page, path, "graph-view")
    drawn = int(widget.get_attribute("data-drawn"))
    for node in (5, 250):
        widget.get_by_test_id(f"node-{node}").hover(force=True)
        soon(
            widget.get_by_test_id("readout").inner_text,
            lambda text, node=node: f"module_{node:03d}" in text.split("attends")[0],
        )
    assert int(widget.get_attribute("data-drawn")) == drawn, "pointing does not draw all again"


def test_a_path_is_played_hop_by_hop(tmp_path: Any, page: Any, soon: Any) -> None:
    graph = Graph(4, [(0, 1), (1, 2), (2, 3), (0, 2), (3, 2)])
    names = ["named", "<next>", "c", "last"]
    view = GraphView(graph, path_of_three(), labels=names, path=[0, 1, 2, 3], step=0)
    widget = saved(page, view.save_html(tmp_path / "path.html"), "graph-view")
    numbers, step = widget.get_by_test_id("hop"), widget.get_by_test_id("step")
    assert said(widget).startswith("A path of 3 hops leads from “named” to “last”. 4 nodes")
    assert numbers.count() == 0
    drawn = pixels(widget.locator("canvas.gv-edges"))
    step.focus()
    page.keyboard.press("ArrowRight")
    soon(lambda: said(widget), "Hop 1 of 3: “<next>” attends to “named” with 1.00 in layer 0.")
    page.keyboard.press("ArrowRight")
    soon(lambda: said(widget), "Hop 2 of 3: “c” attends to “<next>” with 0.25 in layer 1.")
    assert numbers.all_text_contents() == ["1", "2"]
    assert widget.locator(".gv-hop-now").all_text_contents() == ["2"]
    assert widget.get_by_test_id("layer").input_value() == "1"
    soon(lambda: pixels(widget.locator("canvas.gv-edges")) == drawn, False)
    x, y = (sum(node_at(widget, node)[side] for node in (1, 2)) / 2 for side in (0, 1))
    box = numbers.nth(1).bounding_box()
    assert abs(box["x"] + box["width"] / 2 - x) < 10
    assert abs(box["y"] + box["height"] / 2 - y) < 10
    play = widget.get_by_test_id("play")
    play.focus()
    page.keyboard.press("Enter")
    soon(lambda: said(widget), "Hop 3 of 3: “last” attends to “c” with 1.00 in layer 2.")
    soon(play.inner_text, "Play")
    widget.get_by_test_id("as-tables").locator("summary").click()
    rows = widget.get_by_test_id("hops-table").locator("tbody tr")
    soon(rows.count, 3)
    assert rows.nth(1).locator("td").all_inner_texts() == [
        *("2", "2 c", "1 <next>", "layer 1", "0.250", "yes")
    ]
    play.click()
    soon(numbers.count, 0)
    soon(lambda: said(widget), lambda text: text.startswith("Hop 1 of 3"))


def path_of_three() -> torch.Tensor:
    """Weights (3, 1, 5), of three layers."""
    odd, even = [1, 0.5, 1, 0.25, 0.25], [1, 0.25, 1, 0.5, 0.25]
    return torch.tensor([[odd], [even], [odd]])
