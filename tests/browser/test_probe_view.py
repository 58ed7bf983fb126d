"""ProbeView in JupyterLab and as a file: a probe is chosen by click and keys, and read out."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, said, saved, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.probe_view.example import example
view = example()
view.save_html("probes.html", title="<Probes>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "rows": view.rows()}))
"""


def begin(view: Any) -> None:
    view.get_by_test_id("order").select_option("as given")
    view.get_by_test_id("task").select_option("1")
    view.get_by_test_id("point-1-2").click()
    view.get_by_test_id("summary").filter(has_text="“in brackets”, layers 0 to 2").wait_for()


notebook = in_a_notebook("probe_view", MAKE, ASK)
view = in_both("probe-view", "probes.html", begin)


def test_a_click_chooses_a_probe(view: Any, soon: Any) -> None:
    view.get_by_test_id("point-0-0").click()
    soon(lambda: "“begins a word”, the embedding alone" in said(view), True)
    soon(view.get_by_test_id("task").input_value, "0")
    assert view.get_by_test_id("now").count() == 1


def test_keys_go_along_the_rows_as_they_stand(view: Any, soon: Any) -> None:
    view.get_by_test_id("order").select_option("selectivity")
    names = view.get_by_test_id("row").locator(".pv-name")
    soon(lambda: names.all_inner_texts()[-1], "a coin")
    rows = view.get_by_test_id("rows")
    rows.focus()
    for key in ("PageDown", "End"):
        view.page.keyboard.press(key)
    soon(lambda: "“a coin”, layers 0 to 4" in said(view), True)
    soon(lambda: "not told from the control" in rows.get_attribute("aria-label"), True)
    view.page.keyboard.press("ArrowLeft")
    view.page.keyboard.press("ArrowUp")
    soon(lambda: f"“{names.all_inner_texts()[-2]}”, layers 0 to 3" in said(view), True)


def test_the_table_has_score_and_control(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    rows = view.get_by_test_id("probes-table").locator("tbody tr")
    soon(rows.count, 4)
    cells = rows.first.locator("td, th").all_inner_texts()
    assert cells[0] == "begins a word"
    assert " / " in cells[1]
    view.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("probe-view")
    view.get_by_test_id("order").select_option("expected layer")
    view.get_by_test_id("point-2-1").click()
    soon(lambda: "“same word”, layers 0 to 1" in said(view), True)
    found = told(notebook, lambda now: now["said"] == said(view) and now["rows"][-1] == "a coin")
    shown = view.get_by_test_id("row").locator(".pv-name").all_inner_texts()
    assert shown == found["rows"]


@pytest.mark.parametrize("wide", [390, 993])
def test_a_page_fits(page: Any, lab: Any, notebook: Any, overlapping: Any, wide: int) -> None:
    view = saved(page, lab.folder / "probes.html", "probe-view", wide)
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert overlapping(view) == []
    assert view.bounding_box()["height"] < 760
