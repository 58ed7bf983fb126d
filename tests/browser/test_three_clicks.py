"""From `make lab` to the wall and on to a lesson: three clicks at most, counted in the page."""

from typing import Any

import pytest

from tests.conftest import processor_seconds, slowness

pytestmark = pytest.mark.browser

IDLE = """() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status
  === 'idle'"""
CLICKS = """() => {
  window.counted = 0;
  document.addEventListener('click', () => (window.counted += 1), true);
}"""
MOST_CLICKS = 3
MOST_SECONDS = 90  # of a processor, the start of the kernel and of JupyterLab's page among them


def test_from_the_first_lesson_to_that_of_a_mechanism(lab: Any, tabs: Any, expect: Any) -> None:
    page = tabs.open()
    before = processor_seconds(children=True)
    page.goto(f"{lab.url}/lab/workspaces/clicks/tree/00_start_here.ipynb")
    page.locator(".jp-NotebookPanel .jp-Notebook").wait_for()
    page.wait_for_function(IDLE)
    page.evaluate(CLICKS)
    page.locator(".jp-CodeCell").first.locator(".jp-InputArea-editor").click()
    for _ in range(3):  # the imports, the text above the wall, the wall
        page.keyboard.press("Shift+Enter")
    wall = page.get_by_test_id("wall")
    wall.locator("xpath=self::*[@data-drawn]").wait_for()
    wall.locator("[data-testid=tile][data-name=longformer]").click()
    link = (
        wall.get_by_test_id("links")
        .get_by_role("listitem")
        .filter(has_text="Lesson: ")
        .first.get_by_role("link")
    )
    name = link.get_attribute("href")
    clicks = page.evaluate("window.counted") + 1
    link.click()
    page.wait_for_url(f"**/{name}")
    title = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook h1").first
    expect(title).to_contain_text(f"{name[:2]} · ")
    seconds = (processor_seconds(children=True) - before) / slowness()
    print(f"{clicks} clicks, {seconds:.1f} s to {name}")
    assert clicks <= MOST_CLICKS
    assert seconds < MOST_SECONDS
    page.close()
