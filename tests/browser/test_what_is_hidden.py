"""WhatIsHidden in JupyterLab and as a file: what is shown there is what Python drew."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.what_is_hidden import WhatIsHidden

names = ["masked_lm", "next_token", "sentence_order", "span_corruption"]
words = ["<img src=x onerror=alert(1)>", *"the dog ran to the old cat and slept by it".split()]
view = WhatIsHidden(words, objectives=names)
view.save_html("hidden.html", title="<Hidden>")
view
"""
STORED = """
known = WhatIsHidden.stored(objective="masked_lm")
known.save_html("stored.html")
known
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "state": [view.objective, view.rate, view.seed]}))
"""


def begin(view: Any) -> None:
    view.get_by_test_id("objective").select_option("masked_lm")
    slide(view, "rate", 0)
    slide(view, "seed", 0)
    view.get_by_test_id("summary").filter(has_text="masked_lm: of 11 tokens 2 are").wait_for()


notebook = in_a_notebook("what_is_hidden", MAKE, ASK)
view = in_both("what-is-hidden", "hidden.html", begin)


def test_the_rate_and_the_seed_change_the_draw(view: Any, soon: Any) -> None:
    grid = view.get_by_test_id("grid")
    before = pixels(grid)
    slide(view, "rate", 2)
    soon(lambda: "6 are asked for (55 %)" in said(view), True)
    soon(lambda: pixels(grid) != before, True)
    before = pixels(grid)
    slide(view, "seed", 1)
    soon(lambda: pixels(grid) != before, True)
    assert view.locator("img").count() == 0


def test_arrow_keys_go_through_objectives_and_places(view: Any, soon: Any) -> None:
    grid = view.get_by_test_id("grid")
    grid.focus()
    view.page.keyboard.press("ArrowDown")
    soon(lambda: said(view).startswith("next_token: all 11 tokens are shown"), True)
    readout = view.get_by_test_id("readout")
    soon(lambda: readout.inner_text().startswith("Place 0: "), True)
    view.page.keyboard.press("ArrowRight")
    soon(lambda: readout.inner_text(), "Place 1: the model reads “the”; the answer is “dog”.")
    view.page.keyboard.press("ArrowDown")
    soon(lambda: "one answer for the whole text" in said(view), True)
    view.get_by_test_id("objective").select_option("span_corruption")
    soon(lambda: view.get_by_test_id("source").is_visible(), True)
    assert "⟨1⟩" in view.get_by_test_id("source").inner_text()


def test_a_place_is_chosen_by_a_click(view: Any, soon: Any) -> None:
    places = view.get_by_test_id("place")
    soon(lambda: places.count(), 11)
    places.nth(4).click()
    soon(lambda: places.nth(4).get_attribute("aria-selected"), "true")
    soon(lambda: "Place 4:" in view.get_by_test_id("readout").inner_text(), True)
    view.page.keyboard.press("ArrowRight")
    soon(lambda: places.nth(5).get_attribute("aria-selected"), "true")


def test_tables_have_the_numbers(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    rows = view.get_by_test_id("objectives-table").locator("tbody tr")
    soon(lambda: rows.count(), 4)
    assert rows.nth(1).locator("td").all_inner_texts() == ["next_token", "0", "0", "11 of 11"]
    assert view.get_by_test_id("places-table").locator("tbody tr").count() == 11
    view.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("what-is-hidden")
    begin(widget)
    slide(widget, "rate", 1)
    slide(widget, "seed", 2)
    soon(lambda: "3 are" in said(widget), True)
    wanted = {"said": said(widget), "state": ["masked_lm", 0.3, 2]}
    told(notebook, lambda now: wanted.items() <= now.items())


def test_guesses_and_losses_of_a_training_are_shown(notebook: Any, soon: Any) -> None:
    notebook.write(1, STORED)
    notebook.run(1)
    widget = notebook.output(1).get_by_test_id("what-is-hidden")
    widget.and_(notebook.page.locator("[data-drawn]")).wait_for()
    assert "guesses at place" in widget.get_by_test_id("guesses").inner_text()
    assert widget.get_by_test_id("history").is_visible()
    assert "nats" in widget.get_by_test_id("history-note").inner_text()
    widget.get_by_test_id("objective").select_option("contrastive")
    soon(lambda: "no place of it" in widget.get_by_test_id("history-note").inner_text(), True)
