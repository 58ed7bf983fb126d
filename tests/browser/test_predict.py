"""The question that waits for an answer, by mouse and from the keyboard alone."""

import re
from typing import Any

import pytest

from attnlab.predictions import prediction

pytestmark = pytest.mark.browser

ASK = """
from attnlab_widgets.predict import ask
from attnlab.figures.maps import heat_map
ask("Where does <head 3> look?", ["one back", "far back"], "one back", "It copies & shifts.",
        lambda: heat_map([[1.0, 0.0], [0.25, 0.75]], ["a", "b"], title="The map"))
"""
LESSON = """
from attnlab_widgets.predict import predict
predict("61.4", lambda: print("both heads"))
"""
BROKEN = ASK.replace("heat_map([[1.0, 0.0]", "heat_map([[1.0, 0.0, 0.0]")


@pytest.fixture(scope="module")
def asked(opened: Any) -> Any:
    notebook = opened("predictions.ipynb", [ASK, ASK, BROKEN, LESSON])
    notebook.run_all()
    return notebook


def test_with_the_mouse(asked, expect):
    shown = asked.output(0)
    expect(shown).to_contain_text("Where does <head 3> look?")
    commit = shown.get_by_role("button", name="Commit, then look")
    expect(commit).to_be_disabled()
    assert "It copies" not in shown.inner_text()
    shown.get_by_label("far back").check()
    commit.click()
    message = "→ You said far back. It is: one back. It copies & shifts."
    expect(shown.get_by_role("status")).to_have_text(message)
    shown.locator(".js-plotly-plot").wait_for()
    expect(shown.get_by_label("one back")).to_be_disabled()
    assert "It copies" not in asked.output(1).inner_text(), "its neighbour still waits"
    asked.screenshot("predict-mouse")


def test_from_the_keyboard_alone(asked, expect):
    asked.select(1)
    shown, keyboard = asked.output(1), asked.page.keyboard
    asked.tab_into(shown.get_by_label("one back"))
    assert focused(asked.page) == ["radio", True]
    keyboard.press("Space")
    expect(shown.get_by_label("one back")).to_be_checked()
    expect(shown.get_by_role("button", name="Commit, then look")).to_be_enabled()
    asked.tab_into(shown.get_by_role("button", name="Commit, then look"))
    assert focused(asked.page) == ["submit", True]
    keyboard.press("Space")
    expect(shown.get_by_role("status")).to_have_text(re.compile("^✓ Yes: one back."))
    shown.locator(".js-plotly-plot").wait_for()


def test_a_picture_that_fails_is_reported_in_words(asked, expect):
    shown = asked.output(2)
    shown.get_by_label("one back").check()
    shown.get_by_role("button", name="Commit, then look").click()
    expect(shown.get_by_role("alert")).to_contain_text("The picture could not be made")
    expect(shown.get_by_role("status")).to_contain_text("Yes: one back.")
    folded = shown.locator("details")
    folded.wait_for()
    assert not folded.locator("pre").is_visible()
    folded.locator("summary").click()
    expect(folded.locator("pre")).to_be_visible()
    assert "Traceback" in folded.locator("pre").inner_text()


def test_of_a_lesson_what_is_said_follows_what_is_shown(asked, expect):
    shown, known = asked.output(3), prediction("61.4")
    assert known.after
    assert known.why not in shown.inner_text()
    shown.get_by_label(known.answer).check()
    shown.get_by_role("button", name="Commit, then look").click()
    expect(shown.get_by_role("status")).to_contain_text(known.why)
    expect(shown).to_contain_text("both heads")
    said = shown.locator(".jp-RenderedMarkdown")
    expect(said).to_contain_text(known.after[:40])
    expect(said.locator("strong").first).to_be_visible()
    asked.screenshot("predict-lesson")


RING = """() => {
  const focused = document.activeElement, look = getComputedStyle(focused);
  const ring = focused.matches(':focus-visible') && look.outlineStyle !== 'none';
  return [focused.type, ring];
}"""


def focused(page: Any) -> list[Any]:
    """The kind of what has the focus, and whether it can be seen to have it."""
    return page.evaluate(RING)
