"""One widget in JupyterLab and as a saved file, for the stories of its own test file.

    notebook = in_a_notebook("signal_lab", MAKE, ASK)
    lab = in_both("signal-lab", "signal.html")

MAKE shows the widget and saves the file; ASK prints what Python holds. What holds of every widget
is asked in test_every_widget.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import come

FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""What was done to a widget is drawn with the next frame."""


def in_a_notebook(name: str, *cells: str, shown: int = 1) -> Any:
    """The fixture of a notebook with these cells, the first ``shown`` of which show a widget."""

    @pytest.fixture(scope="module")
    def notebook(opened: Any) -> Any:
        notebook = opened(f"{name}.ipynb", cells)
        notebook.run_all()
        for number in range(shown):
            notebook.output(number).locator("[data-drawn]").wait_for()
        return notebook

    return notebook


def in_both(testid: str, file: str, begin: Callable[[Any], None] = lambda widget: None) -> Any:
    """The fixture of a widget, in the first cell and in the file; ``begin`` makes it as it was."""

    @pytest.fixture(params=["JupyterLab", "a saved file"])
    def widget(request: pytest.FixtureRequest, notebook: Any, lab: Any) -> Any:
        if request.param == "JupyterLab":
            found = notebook.output(0).get_by_test_id(testid)
        else:
            found = saved(request.getfixturevalue("page"), lab.folder / file, testid)
        begin(found)
        return found

    return widget


def told(notebook: Any, until: Callable[[dict[str, Any]], bool], cell: int = 1) -> dict[str, Any]:
    """What Python holds, asked again and again until it is so.

    What was chosen last may reach Python after the page has drawn it and the cell has run."""
    return come(lambda: json.loads(notebook.run(cell)), until)  # type: ignore[no-any-return]


def saved(page: Any, path: Any, testid: str, wide: int = 0) -> Any:
    """The widget of a saved file, once it is drawn; in a window ``wide`` pixels across."""
    if wide:
        page.set_viewport_size({"width": wide, "height": 760})
    page.goto(path.as_uri())
    found = page.get_by_test_id(testid)
    found.and_(page.locator("[data-drawn]")).wait_for()
    return found


def slide(widget: Any, testid: str, value: float) -> None:
    """Move a slider there, as the mouse would."""
    widget.get_by_test_id(testid).evaluate(
        "(input, value) => { input.value = value;"
        " input.dispatchEvent(new Event('input', {bubbles: true})); }",
        value,
    )


def said(widget: Any) -> str:
    return str(widget.get_by_test_id("summary").inner_text())


def pixels(canvas: Any) -> str:
    return str(canvas.evaluate("canvas => canvas.toDataURL()"))


def middle(node: Any) -> tuple[float, float]:
    box = node.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Any, begin: tuple[float, float], *ways: tuple[float, float]) -> None:
    """Press the mouse, go along the places and let go."""
    page.mouse.move(*begin)
    page.mouse.down()
    for place in ways:
        page.mouse.move(*place, steps=5)
    page.mouse.up()
