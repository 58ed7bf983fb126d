"""The SynthesizerLab as its reader meets it: from the keyboard, maps and loss on the page."""

import pytest

pytestmark = pytest.mark.browser

CELL = """from attnlab_widgets.synthesizer_lab import SynthesizerLab
SynthesizerLab(("random", "vanilla"), "copying", steps=2000)"""


def test_train_pause_and_stop_from_the_keyboard(opened, expect):
    book = opened("lab.ipynb", [CELL])
    book.run_all()
    shown, keys = book.output(0), book.page.keyboard
    expect(shown.locator(".attnlab-view")).to_have_count(2)
    shown.get_by_label("Task", exact=True).focus()
    book.tab_into(shown.get_by_role("button", name="Train"))
    keys.press("Enter")
    shown.get_by_text("Loss: random", exact=False).wait_for()
    shown.get_by_label("Training step").last.wait_for()
    focused = book.page.locator("button:focus")
    expect(focused).to_have_text("Pause")
    keys.press("Enter")
    shown.get_by_text("Paused; nothing is lost.", exact=False).wait_for()
    keys.press("Tab")
    expect(focused).to_have_text("Stop")
    keys.press("Enter")
    shown.get_by_text("what was learned is kept", exact=False).wait_for()
    shown.get_by_text("on new sequences", exact=False).first.wait_for()
