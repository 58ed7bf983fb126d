"""DepthView in JupyterLab and as a file: what is shown there is what Python computed."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, slide, told

pytestmark = pytest.mark.browser

MAKE = """
import torch
from attnlab_widgets.depth_view import DepthView

made = torch.Generator().manual_seed(0)
start, end = torch.randn(2, 6, 5, generator=made)
left = torch.tensor([4, 1, 3, 2, 4, 1])
states = torch.stack([end + (start - end) * 0.3 ** left.clamp(max=t)[:, None] for t in range(1, 5)])
words = ["<img src=x onerror=alert(1)>", *"bcdef"]
guesses = [[f"{word}{min(t, 2)}" for word in "uvwxyz"] for t in range(4)]
view = DepthView(words, states, left=left, what="layer", guesses=guesses, token=2,
                 probabilities=torch.full((4, 6), 0.25))
view.save_html("depth.html", title="<Depth>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "state": [view.token, view.step, view.colour]}))
"""


def begin(view: Any) -> None:
    slide(view, "step", 3)
    view.get_by_test_id("order").select_option("text")
    view.get_by_test_id("colour").select_option("distance")
    view.get_by_test_id("grid").click(position=place(2, 0))
    view.get_by_test_id("summary").filter(has_text="Token 2 “c” leaves after layer 3").wait_for()


def place(row: int, column: int) -> dict[str, float]:
    """The middle of a cell; a row of six is 24 pixels high, a cell of four at most 84 wide."""
    return {"x": 108 + (column + 0.5) * 84, "y": 1 + (row + 0.5) * 24}


notebook = in_a_notebook("depth_view", MAKE, ASK)
view = in_both("depth-view", "depth.html", begin)


def test_the_way_of_a_token_is_said(view: Any) -> None:
    assert said(view).startswith(
        "6 tokens leave between layer 1 and 4 of 4: 63 % of the work of all"
    )
    assert said(view).endswith("its answer, “w2” with 0.25, is the same from layer 3 on.")
    assert view.locator("img").count() == 0
    assert "after the token has left" in view.get_by_test_id("legend").inner_text()


def test_arrow_keys_go_through_tokens_and_layers(view: Any, soon: Any) -> None:
    view.get_by_test_id("grid").focus()
    view.page.keyboard.press("ArrowDown")
    soon(lambda: "Token 3 “d” leaves after layer 2" in said(view), True)
    before = pixels(view.get_by_test_id("grid"))
    view.page.keyboard.press("ArrowLeft")
    step = view.get_by_test_id("step")
    soon(step.input_value, "2")
    soon(lambda: pixels(view.get_by_test_id("grid")) != before, True)
    view.get_by_test_id("order").select_option("left")
    view.get_by_test_id("grid").focus()
    view.page.keyboard.press("ArrowDown")
    soon(lambda: "Token 2 “c”" in said(view), True)


def test_a_cell_is_read_out(view: Any, soon: Any) -> None:
    readout = view.get_by_test_id("readout")
    view.get_by_test_id("grid").hover(position=place(1, 2))
    soon(
        lambda: readout.inner_text(),
        "Token 1 “b” left after layer 1: nothing is computed at layer 3.",
    )
    view.get_by_test_id("grid").hover(position=place(4, 1))
    soon(lambda: readout.inner_text().startswith("Token 4 “e” after layer 2: "), True)
    assert "answer “y1” with 0.25" in readout.inner_text()


def test_the_film_plays_and_colours_change(view: Any, soon: Any) -> None:
    slide(view, "step", 0)
    play = view.get_by_test_id("play")
    play.click()
    assert play.inner_text() == "Pause"
    soon(play.inner_text, "Play")
    soon(view.get_by_test_id("step").input_value, "3")
    before = pixels(view.get_by_test_id("grid"))
    view.get_by_test_id("colour").select_option("probability")
    soon(lambda: pixels(view.get_by_test_id("grid")) != before, True)
    soon(lambda: "how sure" in view.get_by_test_id("legend").inner_text().lower(), True)


def test_tables_have_the_numbers(view: Any, soon: Any) -> None:
    view.get_by_test_id("as-tables").locator("summary").click()
    way = view.get_by_test_id("way-table").locator("tbody tr")
    soon(lambda: way.count(), 3)
    assert way.nth(2).locator("td").all_inner_texts()[3:] == ["w2", "0.25"]
    assert way.nth(0).locator("td").nth(2).inner_text() == "–", "the state before is not known"
    steps = view.get_by_test_id("steps-table").locator("tbody td:nth-child(2)")
    assert steps.all_inner_texts() == ["6", "4", "3", "2"]
    view.get_by_test_id("as-tables").locator("summary").click()


def test_python_has_the_same_words(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("depth-view")
    begin(widget)
    widget.get_by_test_id("colour").select_option("change")
    widget.get_by_test_id("grid").click(position=place(4, 0))
    soon(lambda: "Token 4" in said(widget), True)
    found = told(notebook, lambda now: now["said"] == said(widget))
    assert found["state"] == [4, 3, "change"]
