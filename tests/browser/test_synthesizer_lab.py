"""The SynthesizerLab as its reader meets it: from the keyboard, maps and loss on the page."""

import re

import pytest

pytestmark = pytest.mark.browser

CELL = """from attnlab_widgets.synthesizer_lab import SynthesizerLab
SynthesizerLab(("random", "vanilla"), "copying", steps=2000)"""


@pytest.fixture(scope="module")
def book(opened):
    book = opened("lab.ipynb", [CELL])
    book.run_all()
    return book


def test_train_pause_and_stop_from_the_keyboard(book, expect):
    shown, keys = book.output(0), book.page.keyboard
    expect(shown.locator(".attnlab-view")).to_have_count(2)
    shown.get_by_label("Task", exact=True).focus()
    book.tab_into(shown.get_by_role("button", name="Train"))
    keys.press("Enter")
    shown.get_by_text("Loss: random", exact=False).wait_for()
    shown.get_by_text("Training step", exact=True).locator("visible=true").first.wait_for()
    focused = book.page.locator("button:focus")
    expect(focused).to_have_text("Pause")
    keys.press("Enter")
    shown.get_by_text("Paused; nothing is lost.", exact=False).wait_for()
    keys.press("Tab")
    expect(focused).to_have_text("Stop")
    keys.press("Enter")
    shown.get_by_text("what was learned is kept", exact=False).wait_for()
    shown.get_by_text("on new sequences", exact=False).first.wait_for()


@pytest.mark.parametrize("wide", [700, 993, 1408])
def test_it_fits_a_cell_after_training(book, wide):
    box = book.shown_at(0, wide)
    assert box["width"] <= wide
    assert box["height"] <= (760 if wide >= 993 else 970)
    columns = [book.output(0).locator(".attnlab-view").nth(at).bounding_box() for at in (0, 1)]
    assert columns[0]["y"] == columns[1]["y"]
    assert book.overlapping(0) == []


def test_what_is_chosen_on_one_side_is_chosen_on_the_other(book, expect):
    """By the page alone; a step of the training is chosen for both."""
    shown = book.output(0)
    views = shown.locator(".attnlab-view")
    views.first.get_by_test_id("head-1-1").click()
    expect(views.last.get_by_test_id("head-1-1")).to_have_class(re.compile("av-chosen"))
    views.last.get_by_test_id("head-0-1").click()
    expect(views.first.get_by_test_id("head-0-1")).to_have_class(re.compile("av-chosen"))
    slider = shown.get_by_role("slider").first
    slider.focus()
    slider.press("Home")
    shown.locator(".widget-readout", has_text=re.compile(r"^0$")).first.wait_for()
