"""Cards in JupyterLab: run, and stored in a notebook that nobody has trusted."""

from typing import Any

import nbformat
import pytest

pytestmark = pytest.mark.browser

CELL = """
import attnlab
from IPython.display import display
display(attnlab.card("longformer"))
attnlab.cards()
"""
LOADED = """area => [...area.querySelectorAll('img')].map(
  image => [image.complete && image.naturalWidth, image.getBoundingClientRect().width])"""


@pytest.fixture(scope="module")
def notebook(opened: Any) -> Any:
    notebook = opened("cards.ipynb", [CELL])
    notebook.run_all()
    return notebook


@pytest.fixture(scope="module")
def stored(opened: Any, lab: Any, notebook: Any) -> Any:
    """The same outputs as a notebook from somewhere else has them: not run, not trusted."""
    made = [output["data"]["text/html"] for output in notebook.saved()[0]["outputs"]]
    assert len(made) == 2
    shown = [nbformat.v4.new_output("display_data", data={"text/html": html}) for html in made]
    cells = [nbformat.v4.new_code_cell(CELL, execution_count=1, outputs=shown)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    book = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(book, lab.folder / "stored_cards.ipynb")
    return opened("stored_cards.ipynb")


@pytest.mark.parametrize("kind", ["notebook", "stored"])
def test_costs_letters_maps_and_links_are_there(kind: str, request: Any, expect: Any) -> None:
    notebook = request.getfixturevalue(kind)
    expect(notebook.output(0).locator(".jp-RenderedHTML")).to_have_count(2)
    card, shelf = notebook.output(0).locator(".jp-RenderedHTML").all()
    expect(card).to_contain_text("w: window: the paper's w")
    expect(card.get_by_role("link", name="lesson 11")).to_have_count(1)
    row = shelf.locator("tr", has_text="Full attention").first
    row.wait_for()
    cost = row.locator("td", has_text="O(").first
    assert cost.inner_text().replace("\u202f", " ") == "O(h n2 (d + e))"
    assert cost.locator("sup").inner_text() == "2"
    assert cost.locator("i").first.evaluate("i => getComputedStyle(i).fontStyle") == "italic"
    assert row.locator("td").first.evaluate("td => getComputedStyle(td).textAlign") == "left"
    images = shelf.evaluate(LOADED)
    assert len(images) > 20
    assert all(loaded and wide >= 40 for loaded, wide in images)
    assert row.locator("a").first.get_attribute("href") == "https://arxiv.org/abs/1706.03762"
    assert "h: heads; d: width of a head" in shelf.inner_text()
    fits = "table => table.scrollWidth <= table.closest('.jp-OutputArea-output').clientWidth"
    assert all(table.evaluate(fits) for table in shelf.locator("table").all())
    notebook.screenshot(f"cards_{kind}")


def test_in_the_dark(notebook: Any) -> None:
    with notebook.dark():
        shelf = notebook.output(0)
        shelf.locator("img").first.wait_for()
        ink = shelf.locator("td").nth(1).evaluate("td => getComputedStyle(td).color")
        assert min(float(part) for part in ink.strip("rgba()").split(",")[:3]) > 120
        notebook.screenshot("cards_dark")
