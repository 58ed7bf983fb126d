"""ExpertsView in JupyterLab and as a file: the page finds again who is dropped, as Python does."""

from typing import Any

import pytest

from tests.browser.widget_pages import drag, in_a_notebook, in_both, said, slide, told

pytestmark = pytest.mark.browser

MAKE = """
import torch
from attnlab_widgets.experts_view import ExpertsView

chosen = torch.tensor([[1, 0], [1, 2], [0, 1], [1, 2], [2, 1], [1, -1], [0, 2], [1, 0]])
gates = torch.tensor([[0.6, 0.4]] * 5 + [[1.0, 0]] + [[0.7, 0.3]] * 2)
router = torch.tensor([[0.2, 0.5, 0.3]] * 8)
words = ["<img src=x onerror=alert(1)>", *"bcdefgh"]
history = {"steps": [0, 50, 100], "shares": [[0.1, 0.8, 0.1], [0.2, 0.5, 0.3], [0.3, 0.4, 0.3]],
           "balance": [2.1, 1.4, 1.02]}
view = ExpertsView(words, chosen, gates, router, capacity=3, history=history)
view.save_html("experts.html", title="<Experts>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "taken": view.taken().tolist()}))
"""


def begin(view: Any) -> None:
    slide(view, "placed", 15)
    slide(view, "capacity", 3)
    view.get_by_test_id("token").nth(5).click()
    view.get_by_test_id("summary").filter(has_text="Token 5 “f” is dropped").wait_for()


notebook = in_a_notebook("experts_view", MAKE, ASK)
view = in_both("experts-view", "experts.html", begin)


def marks(view: Any) -> list[str]:
    found: list[str] = view.get_by_test_id("token").evaluate_all(
        "all => all.map(node => node.getAttribute('aria-label').split(': ')[1])"
    )
    return found


def test_tokens_say_their_experts_and_what_is_dropped(view: Any) -> None:
    assert marks(view)[:3] == [
        "expert 1; expert 0", "expert 1; expert 2", "expert 0; expert 1, dropped",
    ]  # fmt: skip
    assert marks(view)[5] == "expert 1, dropped"
    assert said(view).startswith("Each of 3 experts has room for 3 tokens: 6 of 15 choices are")
    assert view.locator("img").count() == 0
    assert view.get_by_test_id("token").first.inner_text().startswith("<img")


def test_the_capacity_is_dragged_and_the_page_finds_who_is_dropped(view: Any, soon: Any) -> None:
    slide(view, "capacity", 4)
    soon(lambda: "Token 5 “f” goes to expert 1 (1.00)." in said(view), True)
    canvas = view.get_by_test_id("bars")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    cell = 26  # seven choices of the fullest expert have room for squares of full size
    line, y = box["x"] + 78 + 4 * cell - 0.5, box["y"] + 60
    drag(view.page, (line, y), (line - 2 * cell, y))
    soon(lambda: "room for 2 tokens" in said(view), True)
    assert view.get_by_test_id("capacity").input_value() == "2"
    soon(lambda: marks(view)[3], "expert 1, dropped; expert 2, dropped")


def test_keys_go_from_token_to_token_and_a_square_is_clicked(view: Any, soon: Any) -> None:
    view.page.keyboard.press("ArrowLeft")
    soon(
        lambda: "Token 4 “e” goes to expert 2 (0.60); expert 1 (0.40) was full" in said(view), True
    )
    canvas = view.get_by_test_id("bars")
    canvas.click(position={"x": 78 + 1.5 * 26, "y": 24 + 2.5 * 22})
    soon(lambda: "Token 1 “b”" in said(view), True)
    canvas.hover(position={"x": 78 + 0.5 * 26, "y": 24 + 0.5 * 22})
    readout = view.get_by_test_id("readout")
    soon(lambda: readout.inner_text().startswith("Token 2 “c”: expert 0, place 1; expert 1"), True)


def test_choices_are_placed_one_after_the_other(view: Any, soon: Any) -> None:
    slide(view, "placed", 2)
    soon(lambda: "So far 2 choices are placed. Token 1 “b” goes to expert 1" in said(view), True)
    assert marks(view)[4] == "expert 2, not placed yet; expert 1, not placed yet"
    play = view.get_by_test_id("play")
    play.click()
    assert play.inner_text() == "Pause"
    soon(play.inner_text, "Play")
    soon(lambda: "So far" in said(view), False)


def test_tables_and_the_training_have_the_numbers(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    experts = view.get_by_test_id("experts-table").locator("tbody tr")
    soon(lambda: experts.count(), 3)
    assert experts.nth(1).locator("td").all_inner_texts()[:4] == ["1", "7", "3", "4"]
    steps = view.get_by_test_id("training-table").locator("tbody tr")
    assert steps.nth(2).locator("td").all_inner_texts() == ["100", "0.30", "0.40", "0.30", "1.02"]
    view.get_by_test_id("as-tables").locator("summary").click()
    view.get_by_test_id("training").hover(position={"x": 82, "y": 40})
    readout = view.get_by_test_id("training-readout")
    soon(lambda: readout.inner_text().startswith("Step 0: expert 1 has most, 80 %."), True)


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("experts-view")
    slide(widget, "capacity", 2)
    widget.get_by_test_id("token").nth(6).click()
    soon(lambda: "room for 2 tokens" in said(widget) and "Token 6" in said(widget), True)
    found = told(notebook, lambda now: now["said"] == said(widget))
    assert found["taken"][2:4] == [[0, -1], [-1, -1]]
