"""LongRangeUse in JupyterLab and as a file: what is chosen there is what Python has measured."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, said, slide, told

pytestmark = pytest.mark.browser

MAKE = """
import torch
from attnlab import TinyTransformer
from attnlab.lens.far_context import far_context
from attnlab_widgets.long_range_use import LongRangeUse
tokens = torch.randint(29, (5, 96), generator=torch.Generator().manual_seed(3))
found = {}
for name, mechanism, own in (("full", "full", {}), ("window", "longformer", {"window": 16})):
    torch.manual_seed(0)
    model = TinyTransformer(29, dim=8, layers=1, heads=2, positions="sinusoidal",
                            attention=mechanism, attention_options=own)
    found[name] = far_context(model, tokens, last=24, distances=(4, 8, 16, 32))
far = LongRangeUse(found)
far.save_html("far.html", title="<Far>")
far
"""
ASK = """
import json
print(json.dumps({"said": far.description(), "model": far.model, "token": far.token,
                  "distance": far.distance, "lines": far.lines}))
"""


notebook = in_a_notebook("long_range_use", MAKE, ASK)
widget = in_both("long-range-use", "far.html")


def column(widget: Any) -> list[str]:
    cells = widget.get_by_test_id("table").locator("tbody tr td:first-of-type")
    return list(cells.all_inner_texts())


def test_the_distance_moves_the_far_part_and_the_numbers(widget: Any, soon: Any) -> None:
    far = widget.locator(".lr-token.lr-far")
    slide(widget, "distance", 0)
    soon(far.count, 96 - 24 - 4)
    near = column(widget)
    slide(widget, "distance", 3)
    soon(far.count, 96 - 24 - 32)
    soon(lambda: column(widget) != near, True)
    assert "farther than 32 tokens away is left out" in said(widget)
    widget.get_by_test_id("perturbation").select_option("replace")
    soon(lambda: "another text" in said(widget), True)


def test_a_window_has_no_change_beyond_it(widget: Any, soon: Any) -> None:
    widget.get_by_test_id("perturbation").select_option("random")
    widget.get_by_test_id("lines").select_option("models")
    widget.get_by_test_id("token-class").select_option("all")
    slide(widget, "distance", 2)
    soon(lambda: len(column(widget)), 2)
    soon(lambda: column(widget)[1], "+0.000")
    assert column(widget)[0] != "+0.000"
    widget.get_by_test_id("model").select_option("window")
    tokens = widget.get_by_test_id("token")
    soon(
        lambda: {t.evaluate("x => x.style.getPropertyValue('--share')") for t in tokens.all()},
        {"0%"},
    )
    widget.get_by_test_id("model").select_option("full")
    widget.get_by_test_id("lines").select_option("classes")
    soon(lambda: len(column(widget)), 6)


def test_arrow_keys_and_the_mouse_read_out_a_token(widget: Any, soon: Any) -> None:
    readout, tokens = widget.get_by_test_id("readout"), widget.get_by_test_id("token")
    tokens.nth(3).click()
    soon(lambda: tokens.nth(3).get_attribute("aria-selected"), "true")
    widget.page.keyboard.press("ArrowRight")
    soon(lambda: tokens.nth(4).get_attribute("aria-selected"), "true")
    fourth = readout.inner_text()
    assert fourth.startswith(f"“{tokens.nth(4).inner_text()}”")
    tokens.nth(9).hover()
    soon(lambda: readout.inner_text() != fourth, True)
    widget.get_by_test_id("summary").hover()
    soon(readout.inner_text, fourth)


def test_all_distances_as_a_table(widget: Any, soon: Any) -> None:
    details = widget.get_by_test_id("as-tables")
    details.locator("summary").click()
    rows = widget.get_by_test_id("all-distances").locator("tbody tr")
    soon(rows.count, 6)
    assert rows.first.locator("td").count() == 5
    details.locator("summary").click()


def test_python_has_the_same_state(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("long-range-use")
    widget.get_by_test_id("perturbation").select_option("shuffle")
    slide(widget, "distance", 0)
    widget.get_by_test_id("token").nth(7).click()
    soon(
        lambda: "than 4 tokens away is shuffled" in said(widget),
        True,
    )
    wanted = {"said": said(widget), "token": 7, "distance": 4, "lines": "classes"}
    told(notebook, lambda now: wanted.items() <= now.items())
