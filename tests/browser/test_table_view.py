"""TableView in JupyterLab and as a file: questions are chosen, cells reached by mouse and keys."""

import json
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.table_view.example import example as table
view = table()
view.save_html("table.html", title="<Table>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "question": view.question, "cell": view.cell}))
"""


def begin(view: Any) -> None:
    view.get_by_test_id("question").select_option("1")
    view.get_by_test_id("question").select_option("0")
    view.get_by_test_id("summary").filter(has_text="“North Sea” in row 1").wait_for()


notebook = in_a_notebook("table_view", MAKE, ASK)
view = in_both("table-view", "table.html", begin)


def heat(view: Any, testid: str) -> float:
    read = "node => Number(node.style.getPropertyValue('--share'))"
    return float(view.get_by_test_id(testid).evaluate(read))


def test_the_best_cell_and_the_answer_are_marked(view: Any, soon: Any) -> None:
    best = view.get_by_test_id("cell-1-1")
    assert best.inner_text().split() == ["North", "Sea", "6.20", "best", "answer"]
    assert heat(view, "cell-1-1") == heat(view, "row-1") == heat(view, "column-1") == 1
    assert heat(view, "row-4") == heat(view, "column-2") == heat(view, "cell-4-2") == 0
    assert view.get_by_test_id("row-1").inner_text() == "3.40"
    assert "3.40 + 2.80 = 6.20, number 1 of 20" in view.get_by_test_id("readout").inner_text()
    view.get_by_test_id("question").select_option("1")
    soon(lambda: view.get_by_test_id("asked").inner_text(), "How long is the Rhône?")
    assert "the row is not" in view.get_by_test_id("summary").inner_text()
    assert view.get_by_test_id("cell-1-2").inner_text().split()[2:] == ["best"]
    assert view.get_by_test_id("cell-2-2").inner_text().split()[2:] == ["answer"]
    view.get_by_test_id("question").select_option("3")
    soon(lambda: view.locator(".tv-tag b").all_inner_texts(), ["best"])


def test_cells_are_reached_by_mouse_and_keys(view: Any, soon: Any) -> None:
    readout = view.get_by_test_id("readout")
    view.get_by_test_id("cell-3-0").click()
    soon(lambda: readout.inner_text().startswith("Row 3, column “river”: −2.00 + 0.30"), True)
    view.get_by_test_id("cell-3-0").focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowRight"):
        view.page.keyboard.press(key)
    soon(lambda: readout.inner_text().startswith("Row 2, column “length in km”"), True)
    focused = view.locator("td:focus")
    assert focused.get_attribute("data-testid") == "cell-2-2"
    assert focused.get_attribute("aria-selected") == "true"
    assert view.locator("td[tabindex='0']").count() == 1
    view.page.keyboard.press("End")
    soon(lambda: readout.inner_text().startswith("Row 4, column “a city”"), True)


def test_the_tables_have_the_numbers(view: Any, soon: Any) -> None:
    twin = view.get_by_test_id("as-tables")
    twin.locator("summary").click()
    rows = view.get_by_test_id("cells-table").locator("tbody tr")
    soon(lambda: rows.count(), 20)
    first = rows.first.locator("td").all_inner_texts()
    assert first == ["1", "1", "flows into", "North Sea", "3.400", "2.800", "6.200"]
    sums = [
        float(text.replace("−", "-")) for text in rows.locator("td:last-of-type").all_inner_texts()
    ]
    assert sums == sorted(sums, reverse=True)
    questions = view.get_by_test_id("questions-table").locator("tbody tr")
    assert questions.count() == 4
    twin.locator("summary").click()


def test_python_knows_what_was_chosen(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("table-view")
    view.get_by_test_id("question").select_option("2")
    view.get_by_test_id("cell-0-3").click()
    view.page.keyboard.press("ArrowDown")
    soon(lambda: view.get_by_test_id("readout").inner_text()[:6], "Row 1,")
    expected = {"said": view.get_by_test_id("summary").inner_text(), "question": 2, "cell": [1, 3]}
    soon(lambda: json.loads(notebook.run(1)), expected)
    notebook.write(1, "view.question = 0\nprint(view.cell)")
    assert notebook.run(1) == "[1, 1]"
    soon(lambda: "North Sea" in view.get_by_test_id("summary").inner_text(), True)
