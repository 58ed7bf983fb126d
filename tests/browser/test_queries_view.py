"""QueriesView in JupyterLab and as a file: moments, queries and patches, by pointer and keys."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, saved, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.queries_view.example import example
view = example()
view.save_html("queries.html", title="<Queries>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "readers": view.readers(), "query": view.query}))
"""


def begin(view: Any) -> None:
    slide(view, "moment", 3)
    view.get_by_test_id("layer").select_option("1")
    view.get_by_test_id("query-0").click()
    image = view.get_by_test_id("image")
    image.focus()
    view.page.keyboard.press("Escape")
    view.page.mouse.move(0, 0)
    view.get_by_test_id("summary").filter(has_text="After 200 updates").wait_for()


notebook = in_a_notebook("queries_view", MAKE, ASK)
view = in_both("queries-view", "queries.html", begin)


def over(image: Any, row: int, column: int) -> dict[str, float]:
    """The middle of a patch of the 3 × 7, from the corner of the image."""
    box = image.bounding_box()
    return {"x": box["width"] * (column + 0.5) / 7, "y": box["height"] * (row + 0.5) / 3}


def test_pointing_at_a_query_shows_its_patches(view: Any, soon: Any) -> None:
    before = pixels(view.get_by_test_id("map"))
    view.get_by_test_id("query-2").hover()
    soon(lambda: "query 2 attends most to" in said(view), True)
    soon(lambda: pixels(view.get_by_test_id("map")) != before, True)
    view.page.mouse.move(0, 0)
    soon(lambda: "query 0 attends most to" in said(view), True)


def test_pointing_at_a_patch_shows_who_reads_it(view: Any, soon: Any) -> None:
    image = view.get_by_test_id("image")
    image.hover(position=over(image, 1, 2))
    soon(lambda: "The patch in row 1, column 2 is read by query" in said(view), True)
    names = view.get_by_test_id("queries").locator(".qv-name")
    shown = [float(name.split(": ")[1]) for name in names.all_inner_texts()]
    first = int(said(view).split("is read by query ")[1].split()[0])
    assert shown[first] == max(shown)
    view.page.mouse.move(0, 0)
    soon(lambda: "The patch" in said(view), False)


def test_the_slider_goes_through_the_updates(view: Any, soon: Any) -> None:
    late = pixels(view.get_by_test_id("map"))
    slide(view, "moment", 0)
    soon(lambda: said(view).startswith("Before the first update, in cross 2"), True)
    soon(lambda: pixels(view.get_by_test_id("map")) != late, True)
    view.get_by_test_id("play").click()
    soon(lambda: said(view).startswith("After 200 updates"), True)


def test_keys_choose_a_query_and_a_patch(view: Any, soon: Any) -> None:
    view.get_by_test_id("queries").focus()
    for key in ("ArrowDown", "ArrowRight"):
        view.page.keyboard.press(key)
    soon(lambda: "query 3 attends most to" in said(view), True)
    view.get_by_test_id("image").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        view.page.keyboard.press(key)
    soon(lambda: "The patch in row 1, column 1 is read by" in said(view), True)
    view.page.keyboard.press("Escape")
    soon(lambda: "The patch" in said(view), False)


def test_the_tables_hold_the_same_weights(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    rows = view.get_by_test_id("queries-table").locator("tbody tr")
    soon(rows.count, 5)
    cells = rows.first.locator("td").all_inner_texts()
    assert f"query 0 attends most to the patch in {cells[1]}, {cells[2]}; {cells[3]} of" in said(
        view
    )
    assert view.get_by_test_id("patches-table").locator("tbody tr").count() == 21
    view.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("queries-view")
    slide(view, "moment", 2)
    view.get_by_test_id("query-4").click()
    image = view.get_by_test_id("image")
    image.click(position=over(image, 2, 6))
    view.page.mouse.move(0, 0)
    soon(lambda: "The patch in row 2, column 6" in said(view), True)
    soon(lambda: "After 50 updates" in said(view), True)
    found = told(notebook, lambda now: now["said"] == said(view))
    assert found["query"] == 4
    assert f"is read by query {found['readers'][0]} (" in found["said"]


@pytest.mark.parametrize("wide", [390, 993])
def test_a_page_fits(page: Any, lab: Any, notebook: Any, overlapping: Any, wide: int) -> None:
    view = saved(page, lab.folder / "queries.html", "queries-view", wide)
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert overlapping(view) == []
    assert view.bounding_box()["height"] < 760
