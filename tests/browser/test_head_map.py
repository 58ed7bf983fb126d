"""HeadMap in JupyterLab and as a file: a head is chosen by click and keys, and its map follows."""

import json
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, saved, slide

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.head_map.example import example
view = example()
view.save_html("heads.html", title="<Heads>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "near": view.nearest()}))
"""


def begin(view: Any) -> None:
    view.get_by_test_id("head").select_option("1")
    slide(view, "near", 3)
    view.get_by_test_id("colour").select_option("kind")
    view.get_by_test_id("token").first.click()
    view.get_by_test_id("summary").filter(has_text="Head 1 of layer 0").filter(
        has_text="“the” (0) attends"
    ).wait_for()


notebook = in_a_notebook("head_map", MAKE, ASK)
view = in_both("head-map", "heads.html", begin)


def test_a_click_on_a_point_opens_its_map(view: Any, soon: Any) -> None:
    before = pixels(view.get_by_test_id("matrix"))
    view.get_by_test_id("head-3-2").locator(".hm-point").click(timeout=20_000)
    soon(lambda: "Head 2 of layer 3" in said(view), True)
    soon(lambda: pixels(view.get_by_test_id("matrix")) != before, True)
    soon(view.get_by_test_id("head").input_value, "14")
    view.get_by_test_id("live").filter(has_text="Head 2 of layer 3").wait_for(state="attached")


def test_keys_choose_a_head_and_a_query(view: Any, soon: Any) -> None:
    plane = view.get_by_test_id("plane")
    plane.focus()
    view.page.keyboard.press("Home")
    soon(lambda: "Head 0 of layer 0" in said(view), True)
    view.page.keyboard.press("PageDown")
    soon(lambda: "Head 1 of layer 0" in said(view), True)
    view.page.keyboard.press("End")
    soon(lambda: "head 3 of layer 3 is chosen" in plane.get_attribute("aria-label"), True)
    view.get_by_test_id("matrix").focus()
    view.page.keyboard.press("End")
    soon(lambda: "“.” (13) attends most to" in said(view), True)
    view.page.keyboard.press("ArrowUp")
    soon(lambda: "“shown” (12) attends" in said(view), True)
    token = view.get_by_test_id("token").nth(12)
    soon(lambda: token.get_attribute("aria-selected"), "true")
    soon(lambda: token.get_attribute("aria-label").startswith("shown, the query, weight 0."), True)


def test_lines_go_to_the_nearest_heads(view: Any, soon: Any) -> None:
    lines = view.get_by_test_id("plane").locator("line")
    soon(lines.count, 3)
    slide(view, "near", 5)
    soon(lines.count, 5)
    legend = view.get_by_test_id("legend")
    view.get_by_test_id("colour").select_option("layer")
    soon(lambda: "layer 3" in legend.inner_text(), True)


def test_tables_have_the_numbers(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    rows = view.get_by_test_id("heads-table").locator("tbody tr")
    soon(rows.count, 16)
    assert rows.first.locator("td").all_inner_texts()[3] == "0.000", "the chosen one"
    keys = view.get_by_test_id("keys-table").locator("tbody tr")
    soon(keys.count, 1)
    assert keys.first.locator("td").all_inner_texts() == ["0", "the", "1.000"]
    view.get_by_test_id("as-tables").locator("summary").click()


def test_a_masked_pair_is_read_out(view: Any, soon: Any) -> None:
    matrix = view.get_by_test_id("matrix")
    box = matrix.bounding_box()
    matrix.hover(position={"x": box["width"] - 12, "y": 86})
    soon(lambda: "masked" in view.get_by_test_id("readout").inner_text(), True)


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("head-map")
    view.get_by_test_id("head").select_option("9")
    slide(view, "near", 2)
    soon(lambda: "Head 1 of layer 2" in said(view), True)
    # What was chosen last may reach Python after the cell has begun to run.
    found = soon(
        lambda: json.loads(notebook.run(1)),
        lambda now: now["said"] == said(view) and len(now["near"]) == 2,
    )
    assert "Head 1 of layer 2" in found["said"]


@pytest.mark.parametrize("wide", [390, 993])
def test_a_page_fits_a_telephone(
    page: Any, lab: Any, notebook: Any, overlapping: Any, wide: int
) -> None:
    view = saved(page, lab.folder / "heads.html", "head-map", wide)
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert overlapping(view) == []
