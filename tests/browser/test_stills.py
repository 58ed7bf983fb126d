"""Widgets of a notebook that nobody has run: JupyterLab does not trust it, and shows pictures."""

from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.widgets.examples import EXAMPLES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def unrun(lab: Any, opened: Any) -> Any:
    cells = []
    for kind, make in EXAMPLES.items():
        widget = make()
        data, metadata = widget._repr_mimebundle_()
        output = new_output("display_data", data=data, metadata=metadata)
        cells.append(new_code_cell(f"{kind.__name__}(…)", outputs=[output], execution_count=1))
        widget.close()
    kernel = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": kernel}), lab.folder / "unrun.ipynb"
    )
    book = opened("unrun.ipynb")
    book.page.locator(".jp-OutputArea img").first.wait_for()  # the cells are final only then
    return book


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[kind.__name__ for kind in EXAMPLES])
def test_the_picture_is_shown_in_the_width_of_a_cell(unrun: Any, number: int) -> None:
    picture = unrun.output(number).locator("img")
    picture.wait_for()
    wide, natural, room = picture.evaluate(
        "node => [node.clientWidth, node.naturalWidth, node.closest('.jp-OutputArea').clientWidth]"
    )
    assert natural >= 1400
    assert 600 < wide <= room
    assert unrun.output(number).locator(".jupyter-widgets, .lm-Widget canvas").count() == 0
    unrun.screenshot(f"still-{number}")
