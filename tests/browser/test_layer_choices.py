"""LayerChoices in JupyterLab and as a file: layers, branches, the map, the bars, and Python."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, saved, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.layer_choices.example import example
choices = example()
choices.save_html("choices.html", title="<Choices>")
choices
"""
ASK = """
import json
part = choices.selected.branches[choices.branch]
print(json.dumps({
    "state": [choices.layer, choices.head, choices.branch, choices.query],
    "said": choices.description(),
    "read": part.read[choices.head, choices.row].nonzero()[:, 0].tolist(),
}))
"""


def begin(widget: Any) -> None:
    widget.get_by_test_id("layer").select_option("0")
    slide(widget, "head", 0)
    slide(widget, "query", 31)


notebook = in_a_notebook("layer_choices", MAKE, ASK)
widget = in_both("layer-choices", "choices.html", begin)

ROWS = """table => [...table.tBodies[0].rows].map(row =>
  [...row.cells].map(cell => cell.textContent))"""
UNDERLINED = """root => [...root.querySelectorAll('.ts-token')]
  .map((token, at) => token.classList.contains('lc-chosen') ? at : -1).filter(at => at >= 0)"""


def rows(widget: Any, testid: str) -> list[list[str]]:
    found: list[list[str]] = widget.get_by_test_id(testid).evaluate(ROWS)
    return found


def test_each_layer_has_its_units_and_branches(widget: Any, soon: Any) -> None:
    for layer, first, names in (
        ("0", "moba, head 0: query 31", ["selected"]),
        ("1", "nsa, head 0: query 31", ["compressed", "selected", "window"]),
        ("2", "deepseek_sparse, head 0: query 31", ["selected"]),
    ):
        widget.get_by_test_id("layer").select_option(layer)
        soon(lambda first=first: said(widget).startswith(first), True)
        assert [row[0] for row in rows(widget, "branches")] == names
        assert widget.get_by_test_id("branch").is_visible() == (len(names) > 1)
        units = widget.locator("[data-testid^=unit-]").count()
        assert units == (32 if layer == "2" else 8)


def test_a_branch_changes_the_map_and_the_sentence(widget: Any, soon: Any) -> None:
    widget.get_by_test_id("layer").select_option("1")
    soon(lambda: said(widget).startswith("nsa"), True)
    before, words = pixels(widget.get_by_test_id("map")), said(widget)
    widget.get_by_test_id("branch").select_option("window")
    soon(lambda: said(widget) != words and "the last ones" in said(widget), True)
    assert pixels(widget.get_by_test_id("map")) != before
    assert widget.evaluate(UNDERLINED) == [28, 29, 30, 31]
    widget.get_by_test_id("branch").select_option("selected")
    soon(lambda: said(widget), words)
    soon(lambda: pixels(widget.get_by_test_id("map")), before)


def test_a_pair_is_read_out_and_a_click_makes_its_row_the_query(widget: Any, soon: Any) -> None:
    canvas = widget.get_by_test_id("map")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    cell = box["width"] / 32
    canvas.hover(position={"x": 2.5 * cell, "y": 20.5 * cell})
    readout = widget.get_by_test_id("readout")
    soon(lambda: readout.inner_text().startswith("query 20 “20”, key 2 “2”: "), True)
    assert "of full attention" in readout.inner_text()
    canvas.hover(position={"x": 25.5 * cell, "y": 20.5 * cell})
    soon(lambda: readout.inner_text(), "query 20 “20”, key 25 “25”: may not attend")
    canvas.click(position={"x": 2.5 * cell, "y": 20.5 * cell})
    soon(lambda: "query 20 “20”" in said(widget), True)


def test_arrow_keys_choose_the_query_and_the_unit(widget: Any, soon: Any) -> None:
    page = widget.page
    widget.get_by_test_id("token").nth(12).click()
    soon(lambda: "query 12 " in said(widget), True)
    page.keyboard.press("ArrowRight")
    soon(lambda: "query 13 " in said(widget), True)
    stage = widget.get_by_test_id("units")
    stage.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    soon(lambda: stage.get_attribute("aria-valuenow"), lambda now: now in ("1", "2"))
    name = f"block {stage.get_attribute('aria-valuenow')} ("
    assert (stage.get_attribute("aria-valuetext") or "").startswith(name)
    assert rows(widget, "table")[0][0].startswith(name), "the unit that is pointed at comes first"
    widget.locator("[data-testid=unit-3]").hover()
    soon(lambda: rows(widget, "table")[0][0].startswith("block 3 (12 to 15)"), True)


def test_python_has_the_same_numbers(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("layer-choices")
    begin(widget)
    widget.get_by_test_id("layer").select_option("2")
    slide(widget, "head", 1)
    slide(widget, "query", 23)
    now = told(notebook, lambda now: now["state"] == [2, 1, "selected", 23])
    soon(lambda: said(widget), now["said"])
    assert widget.evaluate(UNDERLINED) == now["read"]


@pytest.mark.parametrize("wide", [390, 993])
def test_it_fits_narrow_and_usual_windows(notebook: Any, lab: Any, page: Any, wide: int) -> None:
    found = saved(page, lab.folder / "choices.html", "layer-choices", wide)
    for layer in ("0", "1", "2"):
        found.get_by_test_id("layer").select_option(layer)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => done()))")
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        if wide == 993:
            assert found.bounding_box()["height"] <= 760
