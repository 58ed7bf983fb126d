"""Every widget that is a page of its own fits a laptop's cell, and no control covers another."""

from typing import Any

import pytest

from tests.widgets.stills import EXAMPLES

pytestmark = pytest.mark.browser

PAGES = [
    *("PatternStudio", "TreeExplorer", "PositionExplorer", "ComplexWordExplorer"),
    *("QueryKeySpace", "AttentionView", "WhoIsChosen", "CostLab", "Survey", "LongRangeUse"),
    *("EnergyLandscape", "MemoryFilm", "SignalLab", "TableView", "GraphView"),
]
TALL = {"TreeExplorer": 1300, "QueryKeySpace": 1300}
"""Pixels that a widget may be high at 700 across; others 900."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pages")
    made = {kind.__name__: make for kind, make in EXAMPLES.items()}
    return {name: made[name]().save_html(folder / f"{name}.html") for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_it_fits(page: Any, files: Any, soon: Any, overlapping: Any, name: str) -> None:
    page.goto(files[name].as_uri())
    widget = page.locator(".attnlab-view")
    for wide, most in ((1408, 760), (993, 760), (700, TALL.get(name, 900))):
        page.set_viewport_size({"width": wide + 32, "height": 760})
        soon(lambda wide=wide: widget.bounding_box()["width"], wide)
        soon(lambda: widget.bounding_box()["height"], lambda high, most=most: high <= most)
        across = "document.documentElement.scrollWidth"
        soon(lambda across=across: page.evaluate(across), lambda w, wide=wide: w <= wide + 32)
        assert overlapping(widget) == []
