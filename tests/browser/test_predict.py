"""The question that waits for an answer, by mouse and from the keyboard alone."""

from typing import Any

import pytest

pytestmark = pytest.mark.browser

ASK = """
from attnlab_widgets.predict import predict
from attnlab.figures.maps import heat_map
predict("Where does <head 3> look?", ["one back", "far back"], "one back", "It copies & shifts.",
        lambda: heat_map([[1.0, 0.0], [0.25, 0.75]], ["a", "b"], title="The map"))
"""
BROKEN = ASK.replace("heat_map([[1.0, 0.0]", "heat_map([[1.0, 0.0, 0.0]")


@pytest.fixture(scope="module")
def asked(opened: Any) -> Any:
    notebook = opened("predictions.ipynb", [ASK, ASK, BROKEN])
    notebook.run_all()
    return notebook


def test_with_the_mouse(asked):
    shown = asked.output(0)
    assert "Where does <head 3> look?" in shown.inner_text()
    assert "It copies" not in shown.inner_text()
    commit = shown.get_by_role("button", name="Commit, then look")
    assert commit.is_disabled()
    shown.get_by_label("far back").check()
    commit.click()
    shown.get_by_role("status").wait_for()
    said = shown.get_by_role("status").inner_text()
    assert said == "→ You said far back. It is: one back. It copies & shifts."
    shown.locator(".js-plotly-plot").wait_for()
    assert shown.get_by_label("one back").is_disabled()
    assert "It copies" not in asked.output(1).inner_text(), "its neighbour still waits"
    asked.screenshot("predict-mouse")


def test_from_the_keyboard_alone(asked):
    asked.select(1)
    shown, keyboard = asked.output(1), asked.page.keyboard
    asked.tab_into(shown.get_by_label("one back"))
    assert focused(asked.page) == ["radio", True]
    keyboard.press("Space")
    assert shown.get_by_label("one back").is_checked()
    asked.page.wait_for_function(ENABLED, arg=shown.get_by_role("button").element_handle())
    asked.tab_into(shown.get_by_role("button", name="Commit, then look"))
    assert focused(asked.page) == ["submit", True]
    keyboard.press("Space")
    shown.get_by_role("status").wait_for()
    assert shown.get_by_role("status").inner_text().startswith("✓ Yes: one back.")
    shown.locator(".js-plotly-plot").wait_for()


def test_a_picture_that_fails_is_told_in_words(asked):
    shown = asked.output(2)
    shown.get_by_label("one back").check()
    shown.get_by_role("button", name="Commit, then look").click()
    shown.get_by_role("alert").wait_for()
    assert "The picture could not be made" in shown.get_by_role("alert").inner_text()
    assert "Yes: one back." in shown.get_by_role("status").inner_text()
    folded = shown.locator("details")
    folded.wait_for()
    assert not folded.locator("pre").is_visible()
    folded.locator("summary").click()
    assert "Traceback" in folded.locator("pre").inner_text()


ENABLED = "button => !button.disabled"
RING = """() => {
  const focused = document.activeElement, look = getComputedStyle(focused);
  const ring = focused.matches(':focus-visible') && look.outlineStyle !== 'none';
  return [focused.type, ring];
}"""


def focused(page: Any) -> list[Any]:
    """The kind of what has the focus, and whether it can be seen to have it."""
    return page.evaluate(RING)
