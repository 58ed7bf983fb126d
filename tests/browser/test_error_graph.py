"""ErrorGraph in JupyterLab and as a file: a step is chosen by click, keys and name."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, said, saved

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.error_graph.example import example
view = example()
view.save_html("errors.html", title="<Errors>")
view
"""
ASK = "print(view.node, view.description())"


def begin(view: Any) -> None:
    view.get_by_test_id("broke").click()
    view.get_by_test_id("summary").filter(has_text="“best 2” went wrong by itself").wait_for()


notebook = in_a_notebook("error_graph", MAKE, ASK)
view = in_both("error-graph", "errors.html", begin)


def test_a_click_chooses_a_step_and_its_lines(view: Any, soon: Any) -> None:
    own = view.get_by_test_id("stage").locator("line.eg-own")
    soon(own.count, 3)
    view.get_by_test_id("node-10").locator(".eg-point").click(timeout=20_000)
    soon(lambda: "“best 1” is propagated" in said(view), True)
    soon(view.get_by_test_id("step").input_value, "10")
    soon(view.get_by_test_id("stage").locator("line.eg-own.eg-wrong").count, 1)
    view.get_by_test_id("live").filter(has_text="“best 1”").wait_for(state="attached")


def test_keys_go_through_the_steps(view: Any, soon: Any) -> None:
    stage = view.get_by_test_id("stage")
    stage.focus()
    view.page.keyboard.press("End")
    soon(lambda: "“chosen 5” is correct" in said(view), True)
    view.page.keyboard.press("ArrowLeft")
    soon(lambda: "“chosen 4” is restored" in said(view), True)
    view.page.keyboard.press("Home")
    soon(lambda: "“value 0” is given: 3." in stage.get_attribute("aria-label"), True)


def test_the_table_has_all_values(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    rows = view.get_by_test_id("steps-table").locator("tbody tr")
    soon(rows.count, 18)
    assert rows.nth(9).locator("td").all_inner_texts()[1:5] == ["local", "7", "6", "6"]
    view.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("error-graph")
    view.get_by_test_id("step").select_option("14")
    soon(lambda: "“chosen 2” is propagated" in said(view), True)
    # What was chosen last may reach Python after the cell has begun to run.
    soon(lambda: notebook.run(1).strip(), lambda now: now == f"14 {said(view)}")


@pytest.mark.parametrize("wide", [390, 993])
def test_a_page_fits_a_telephone(
    page: Any, lab: Any, notebook: Any, overlapping: Any, wide: int
) -> None:
    view = saved(page, lab.folder / "errors.html", "error-graph", wide)
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert overlapping(view) == []
