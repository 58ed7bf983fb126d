"""KernelLab as its reader meets it: labels, the keyboard, and a dark page."""

import re

import pytest

pytestmark = pytest.mark.browser

CELL = """from attnlab_widgets.kernel_lab import KernelLab
lab = KernelLab(length=128)
lab"""


@pytest.fixture(scope="module")
def book(opened):
    book = opened("kernels.ipynb", [CELL])
    book.run_all()
    return book


def wait_for_text(shown, words):
    """Wait until the page tells it, to screen readers too."""
    shown.get_by_role("status").filter(has_text=words).wait_for()


def test_controls_have_names_and_the_maps_answer(book, expect):
    shown = book.output(0)
    shown.get_by_label("Feature map", exact=True).select_option("random: cos and sin")
    wait_for_text(shown, "divided by a number below zero")
    shown.get_by_label("Head", exact=True).select_option("sharp head")
    picture = shown.get_by_role("img").first
    expect(picture).to_have_attribute("aria-label", re.compile("in the wrong place"))
    wait_for_text(shown, "Median of 5 forward passes")


def test_features_by_the_keyboard(book):
    shown, keys = book.output(0), book.page.keyboard
    shown.get_by_label("Feature map", exact=True).select_option("random: positive")
    wait_for_text(shown, "positive, 64 features")
    shown.get_by_label("Feature map", exact=True).focus()
    sliders = shown.get_by_role("slider")
    book.tab_into(sliders.first)
    keys.press("ArrowRight")
    wait_for_text(shown, "positive, 128 features")


def test_dark_pages_get_dark_paper(book, expect):
    with book.dark():
        paper = book.output(0).locator(".attnlab-kernels svg rect").first
        expect(paper).to_have_css("fill", "rgb(22, 24, 29)")
        book.screenshot("kernel-lab-dark")


@pytest.mark.parametrize("wide", [700, 993, 1408])
def test_it_fits_a_cell(book, wide):
    box = book.shown_at(0, wide)
    assert box["width"] <= wide
    assert box["height"] <= 760
    more = book.output(0).get_by_role("button", name="More")
    more.click()
    book.output(0).get_by_text("Rows are queries").wait_for()
    assert book.overlapping(0) == []
    more.click()
