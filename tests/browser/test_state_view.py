"""StateView in JupyterLab and as a file: what is computed there is what Python computes."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, said, saved, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets import StateView
view = StateView()
view.save_html("state.html", title="<State>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "right": [*view.right().values()],
                  "states": view.states()[view.token + 1].tolist()}))
"""


def begin(view: Any) -> None:
    view.get_by_test_id("preset").select_option("similar keys")
    view.get_by_test_id("preset").select_option("told anew")
    view.get_by_test_id("family").select_option("deltanet")
    view.get_by_test_id("summary").filter(has_text="DeltaNet, token 4 of 8").wait_for()


notebook = in_a_notebook("state_view", MAKE, ASK)
view = in_both("state-view", "state.html", begin)


def numbers(view: Any, testid: str) -> list[float]:
    """The numbers of a table: those that stand in it as text."""
    if not view.get_by_test_id("as-tables").evaluate("node => node.open"):
        view.get_by_test_id("as-tables").locator("summary").click()
    view.get_by_test_id(testid).wait_for()
    cells = view.get_by_test_id(testid).locator("tbody tr td:not(:first-of-type)")
    return [float(text.replace("−", "-")) for text in cells.all_inner_texts()]


def test_another_rule_keeps_what_was_overwritten(view: Any, soon: Any) -> None:
    assert "Ada returns gold (1.00)" in said(view)
    newest = view.get_by_test_id("newest")
    assert newest.inner_text().split("\n")[0] == "gold ✓"
    view.get_by_test_id("family").select_option("linear")
    soon(lambda: "Ada returns red or gold (1.00)" in said(view), True)
    assert newest.inner_text().split("\n")[0] == "gold ✗"
    assert view.get_by_test_id("decay").is_disabled()
    assert view.get_by_test_id("formula").inner_text().startswith("A = I.")
    label = view.get_by_test_id("transition").get_attribute("aria-label")
    assert label.startswith("A: what is kept: 0: 0 1.00, 1 0.00")
    view.get_by_test_id("live").filter(has_text="red or gold").wait_for(state="attached")


def test_keys_go_from_fact_to_fact_and_a_step_of_two_reflects(view: Any, soon: Any) -> None:
    view.get_by_test_id("token").nth(3).focus()
    view.page.keyboard.press("ArrowRight")
    soon(lambda: "token 5 of 8, Dan → red" in said(view), True)
    slide(view, "step", 2)
    soon(lambda: "the eigenvalues of A are −1.00, 1.00, 1.00 and 1.00" in said(view), True)
    assert view.get_by_test_id("preset").input_value() == ""


def test_a_fact_is_changed(view: Any, soon: Any) -> None:
    view.get_by_test_id("more").click()
    view.get_by_test_id("value").select_option("blue")
    soon(lambda: "Ada → blue" in said(view), True)
    slide(view, "forget", 3)
    soon(lambda: view.get_by_test_id("token").nth(3).inner_text(), "Ada → blue (f = 3)")
    view.page.keyboard.press("Escape")


def test_python_has_the_same_numbers(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("state-view")
    view.get_by_test_id("preset").select_option("similar keys")
    view.get_by_test_id("family").select_option("kimi_delta")
    soon(lambda: "Kimi Delta Attention, token 5" in said(view), True)
    found = told(notebook, lambda now: now["said"] == said(view))
    rules = view.get_by_test_id("rules").locator("td").all_inner_texts()
    assert [f"{right} of 4" for right in found["right"]] == rules
    wanted = [x for row in found["states"] for x in row]
    assert numbers(view, "state-table") == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("wide", [390, 993])
def test_a_page_fits_a_telephone(
    page: Any, lab: Any, notebook: Any, overlapping: Any, wide: int
) -> None:
    view = saved(page, lab.folder / "state.html", "state-view", wide)
    for preset in ("similar keys", "a new topic", "beyond the projection"):
        view.get_by_test_id("preset").select_option(preset)
        view.get_by_test_id("summary").filter(has_text="token").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        assert overlapping(view) == []
