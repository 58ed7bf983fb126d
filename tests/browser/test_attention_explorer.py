"""The explorer as its reader meets it: typing, and training from the keyboard alone."""

import pytest
from attnlab_widgets.attention_explorer.models import reference_model

pytestmark = pytest.mark.browser

CELL = """from attnlab_widgets.attention_explorer import AttentionExplorer
AttentionExplorer("a for loop", untrained={"dim": 8, "layers": 1, "heads": 2}, steps=4000)"""


@pytest.fixture(scope="module")
def book(opened):
    book = opened("explorer.ipynb", [CELL])
    book.run_all()
    return book


def test_typing_reaches_both_views(book, expect):
    field = book.output(0).get_by_label("Text", exact=True)
    text = "<b>while</b> & 🙂"
    field.fill(text)
    field.press("Tab")
    count = f"{len(reference_model()[1].encode(text))} tokens"
    views = book.output(0).locator(".attnlab-view")
    expect(views).to_have_count(2)
    for at in range(2):
        expect(views.nth(at).get_by_test_id("summary")).to_contain_text(count)
    assert book.output(0).locator(".attnlab-view b").count() == 0


def test_before_training_it_is_less_than_920_pixels_high_in_a_narrow_cell(book):
    book.output(0).get_by_label("Text", exact=True).fill("The for statement is used to iterate.")
    book.output(0).locator(".attnlab-view").last.get_by_text("iter").first.wait_for()
    assert book.shown_at(0, 700)["height"] <= 920


def test_training_is_started_paused_and_stopped_from_the_keyboard(book, expect):
    shown, keys = book.output(0), book.page.keyboard
    shown.get_by_label("Text", exact=True).focus()
    book.tab_into(shown.get_by_role("button", name="Train"))
    keys.press("Enter")
    shown.get_by_text("untrained, then", exact=False).wait_for()
    shown.get_by_text("Training step", exact=True).locator("visible=true").first.wait_for()
    focused = book.page.locator("button:focus")
    expect(focused).to_have_text("Pause")
    keys.press("Enter")
    shown.get_by_text("Paused; nothing is lost.", exact=False).wait_for()
    expect(focused).to_have_text("Resume")
    keys.press("Tab")
    expect(focused).to_have_text("Stop")
    keys.press("Enter")
    shown.get_by_text("what was learned is kept", exact=False).wait_for()
    expect(shown.get_by_role("button", name="Train")).to_have_count(1)


@pytest.mark.parametrize("wide", [700, 993, 1408])
def test_it_fits_a_cell(book, wide):
    """With the lines of a training; at 700 pixels both sides are still side by side."""
    book.output(0).get_by_label("Text", exact=True).fill("The for statement is used to iterate.")
    book.output(0).locator(".attnlab-view").last.get_by_text("iter").first.wait_for()
    box = book.shown_at(0, wide)
    assert box["width"] <= wide
    assert box["height"] <= (760 if wide >= 993 else 1000)
    columns = [book.output(0).locator(".attnlab-view").nth(at).bounding_box() for at in (0, 1)]
    assert columns[0]["y"] == columns[1]["y"]
    assert book.overlapping(0) == []


DEFAULT = """from attnlab_widgets.attention_explorer import AttentionExplorer
explorer = AttentionExplorer(steps=3)
explorer"""


def test_the_default_fits_after_its_training(opened, expect):
    book = opened("default.ipynb", [DEFAULT, "explorer.train(); print(explorer.wait(100))"])
    book.run_all()
    views = book.output(0).locator(".attnlab-view")
    expect(views).to_have_count(2)
    book.output(0).get_by_text("Trained for 3 steps.", exact=False).wait_for()
    for wide in (1408, 993):
        assert book.shown_at(0, wide)["height"] <= 760
        assert book.overlapping(0) == []
