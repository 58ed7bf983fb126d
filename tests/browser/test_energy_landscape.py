"""EnergyLandscape in JupyterLab and as a file: what is moved there is what Python computes."""

from typing import Any

import pytest

from tests.browser.widget_pages import (
    drag,
    in_a_notebook,
    in_both,
    middle,
    pixels,
    said,
    slide,
    told,
)

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.energy_landscape import EnergyLandscape
landscape = EnergyLandscape()
landscape.save_html("landscape.html", title="<Landscape>")
landscape
"""
ASK = """
import json
print(json.dumps({"said": landscape.description(), "query": landscape.query, "beta": landscape.beta,
                  "energies": [f"{energy:.3f}" for energy in landscape.energies().tolist()]}))
"""


def begin(landscape: Any) -> None:
    landscape.get_by_test_id("preset").select_option("two alike")
    landscape.get_by_test_id("preset").select_option("four patterns")
    landscape.get_by_test_id("summary").filter(has_text="from (0.50, 0.40)").wait_for()


notebook = in_a_notebook("energy_landscape", MAKE, ASK)
landscape = in_both("energy-landscape", "landscape.html", begin)


def column(landscape: Any, at: int) -> list[str]:
    cells = landscape.get_by_test_id("table").locator(f"tbody tr td:nth-of-type({at + 1})")
    return list(cells.all_inner_texts())


def test_a_dragged_query_falls_into_another_valley(landscape: Any, soon: Any, still: Any) -> None:
    still(landscape)
    assert "pattern a" in landscape.get_by_test_id("summary").inner_text()
    box = landscape.get_by_test_id("landscape").bounding_box()
    x, y = middle(landscape.get_by_test_id("query").locator(".qp-reach"))
    opposite = 2 * box["x"] + box["width"] - x, 2 * box["y"] + box["height"] - y
    drag(landscape.page, (x, y), (x - 9, y + 9), opposite)
    summary = landscape.get_by_test_id("summary")
    soon(lambda: "pattern c" in summary.inner_text(), True)
    assert landscape.get_by_test_id("preset").input_value() == ""
    energies = [float(text) for text in column(landscape, 1)]
    assert energies == sorted(energies, reverse=True)
    assert len(energies) == 7
    assert landscape.locator(".el-stage .el-step").count() == 6


def test_keys_move_and_beta_flattens(landscape: Any, soon: Any) -> None:
    query = landscape.get_by_test_id("query")
    query.focus()
    landscape.page.keyboard.press("Shift+ArrowLeft")
    soon(lambda: query.get_attribute("aria-valuetext").startswith("at 0.1"), True)
    valley = landscape.locator("canvas.qp-map")
    before = pixels(valley)
    slide(landscape, "beta", -3)
    summary = landscape.get_by_test_id("summary")
    soon(lambda: "a mean of all 4 patterns" in summary.inner_text(), True)
    assert pixels(valley) != before
    landscape.get_by_test_id("live").filter(has_text="mean of all 4").wait_for(state="attached")


def test_a_row_of_the_table_finds_its_state(landscape: Any, expect: Any) -> None:
    landscape.get_by_test_id("table").locator("tbody tr").nth(2).hover()
    expect(landscape.locator(".el-stage .el-step").nth(1)).to_have_class("el-step el-at")
    expect(landscape.locator(".el-plot .el-step").nth(2)).to_have_class("el-step el-at")


def test_python_has_the_same_numbers(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("energy-landscape")
    widget.get_by_test_id("pattern-1").focus()
    widget.page.keyboard.press("Shift+ArrowUp")
    slide(widget, "steps", 3)
    soon(lambda: len(column(widget, 1)), 4)
    wanted = {"said": said(widget), "energies": column(widget, 1)}
    told(notebook, lambda now: wanted.items() <= now.items())
