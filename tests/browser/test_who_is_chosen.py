"""WhoIsChosen in JupyterLab and as a file: what is moved there is what Python computes."""

from typing import Any

import pytest

from tests.browser.widget_pages import drag, in_a_notebook, in_both, middle, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.who_is_chosen import WhoIsChosen
chosen = WhoIsChosen()
chosen.save_html("chosen.html", title="<Chosen>")
chosen
"""
ASK = """
import json
from attnlab_widgets.who_is_chosen import WAYS
print(json.dumps({way: [f"{100 * chosen.recall(way):.0f} %", f"{chosen.choice(way).pairs:,}"]
                  for way in WAYS} | {"query": chosen.query, "moved": chosen.moved}))
"""


notebook = in_a_notebook("who_is_chosen", MAKE, ASK)
widget = in_both("who-is-chosen", "chosen.html")


def table(widget: Any) -> list[list[str]]:
    rows = widget.get_by_test_id("table").locator("tbody tr")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def test_rounds_turn_and_buckets_change_hashing_alone(widget: Any, soon: Any) -> None:
    slide(widget, "rounds", 1)
    soon(lambda: widget.get_by_test_id("rounds").locator("+ output").inner_text(), "1")
    before = table(widget)
    slide(widget, "rounds", 6)
    soon(lambda: table(widget)[1] != before[1], True)
    after = table(widget)
    assert int(after[1][1].replace(",", "")) > int(before[1][1].replace(",", ""))
    assert [after[at] for at in (0, 2, 3)] == [before[at] for at in (0, 2, 3)]
    slide(widget, "turn", 137)
    soon(lambda: table(widget)[1] != after[1], True)
    turned = table(widget)
    assert turned[3] == before[3]
    widget.get_by_test_id("buckets").select_option("2")
    soon(
        lambda: int(table(widget)[1][1].replace(",", "")) > int(turned[1][1].replace(",", "")), True
    )
    widget.get_by_test_id("buckets").select_option("8")


def test_a_dragged_query_changes_its_bucket(widget: Any, soon: Any, still: Any) -> None:
    still(widget)
    summary = widget.get_by_test_id("summary")
    widget.get_by_test_id("token").nth(5).click()
    soon(lambda: summary.inner_text().startswith("Query 5 “5”"), True)
    bucket = summary.inner_text().split(" of ")[0]
    box = widget.get_by_test_id("plane").bounding_box()
    x, y = middle(widget.get_by_test_id("handle").locator(".qp-reach"))
    # To the other side of the origin: x and −x never share a bucket.
    opposite = 2 * box["x"] + box["width"] - x, 2 * box["y"] + box["height"] - y
    drag(widget.page, (x, y), (x + 9, y + 9), opposite)
    soon(lambda: summary.inner_text().split(" of ")[0] != bucket, True)
    widget.get_by_test_id("more").click()
    widget.get_by_test_id("undo").click()
    soon(lambda: summary.inner_text().split(" of ")[0], bucket)
    widget.page.keyboard.press("Escape")


def test_arrow_keys_choose_the_query(widget: Any, soon: Any) -> None:
    widget.get_by_test_id("token").nth(3).click()
    widget.page.keyboard.press("ArrowRight")
    summary = widget.get_by_test_id("summary")
    soon(lambda: summary.inner_text().startswith("Query 4 “4”"), True)
    assert widget.get_by_test_id("token").nth(4).get_attribute("aria-selected") == "true"


def test_python_has_the_same_numbers(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("who-is-chosen")
    widget.get_by_test_id("clusters").select_option("6")
    widget.get_by_test_id("more").click()
    widget.get_by_test_id("causal").check()
    slide(widget, "top", 5)
    widget.page.keyboard.press("Escape")
    soon(lambda: table(widget)[0][1], "497")  # 32 · 31 / 2, and the first token with itself
    ways = ("weight", "hashing", "clustering", "sorting")
    told(notebook, lambda now: [now[way] for way in ways] == [row[:2] for row in table(widget)])
