"""PositionExplorer in JupyterLab and as a file: what is chosen, pointed at and turned by hand."""

import re
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.position_explorer import PositionExplorer
explorer = PositionExplorer(scheme="rope")
explorer.save_html("positions.html")
explorer
"""
ASK = """
import json
print(json.dumps({name: getattr(explorer, name) for name in
                  ("shown", "scheme", "head", "query", "key", "phases", "score")}))
"""


def begin(explorer: Any) -> None:
    slide(explorer, "query", 12)
    slide(explorer, "key", 8)
    explorer.get_by_test_id("reset").click()
    explorer.get_by_test_id("score").filter(has_text="Distance 4").wait_for()


notebook = in_a_notebook("position_explorer", MAKE, ASK)
explorer = in_both("position-explorer", "positions.html", begin)


def angle(explorer: Any, name: str) -> float:
    turn = explorer.get_by_test_id(name).get_attribute("transform")
    found = re.fullmatch(r"rotate\((-?[\d.e-]+)\)", turn or "")
    assert found
    return float(found[1])


def test_moving_both_turns_the_arrows_and_keeps_the_score(explorer: Any, soon: Any) -> None:
    score = explorer.get_by_test_id("score").inner_text()
    pair = explorer.get_by_test_id("pair-0").inner_text()
    before = angle(explorer, "query-0"), angle(explorer, "key-0")
    slide(explorer, "both", 31)
    soon(lambda: explorer.get_by_test_id("query").input_value(), "35")
    soon(lambda: angle(explorer, "query-0") == before[0], False)
    assert angle(explorer, "key-0") != before[1]
    assert explorer.get_by_test_id("score").inner_text() == score
    assert explorer.get_by_test_id("pair-0").inner_text() == pair
    slide(explorer, "key", 20)
    explorer.get_by_test_id("score").filter(has_text="Distance 15").wait_for()
    assert explorer.get_by_test_id("pair-0").inner_text() != pair


def test_an_arrow_is_turned_by_the_mouse_and_by_keys(explorer: Any, soon: Any, still: Any) -> None:
    start = angle(explorer, "query-0")
    arrow = explorer.get_by_test_id("query-0")
    arrow.focus()
    explorer.page.keyboard.press("ArrowUp")
    soon(lambda: round(angle(explorer, "query-0") - start, 3), -5.0)
    face = still(explorer.get_by_test_id("dial-0"))
    middle = face["x"] + face["width"] / 2, face["y"] + face["height"] / 2
    box = still(arrow.locator(".pe-tip"))
    mouse = explorer.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    mouse.down()
    mouse.move(middle[0], middle[1] - 40)  # straight up
    mouse.up()
    soon(lambda: round(angle(explorer, "query-0")) % 360, 270)


def test_schemes_are_shown_and_chosen(explorer: Any, soon: Any) -> None:
    explorer.get_by_test_id("show-alibi").uncheck()
    names = explorer.get_by_test_id("curves").locator(".pe-name")
    soon(names.all_text_contents, ["none", "rope", "sinusoidal"])
    explorer.get_by_test_id("scheme").select_option("alibi")
    soon(names.all_text_contents, ["none", "alibi", "rope", "sinusoidal"])
    explorer.get_by_test_id("curves").hover()
    explorer.get_by_test_id("curve-readout").filter(has_text="Distance").wait_for()
    explorer.get_by_test_id("map").locator("canvas").click(position={"x": 40, "y": 200})
    explorer.get_by_test_id("map-readout").filter(has_text="Query").wait_for()
    soon(lambda: int(explorer.get_by_test_id("query").input_value()) > 20, True)
    explorer.get_by_test_id("scheme").select_option("rope")


def test_python_is_told(notebook: Any, soon: Any) -> None:
    explorer = notebook.output(0).get_by_test_id("position-explorer")
    slide(explorer, "query", 7)
    slide(explorer, "head", 3)
    wanted = {"query": 7, "head": 3, "scheme": "rope"}
    told(notebook, lambda now: wanted.items() <= now.items())
