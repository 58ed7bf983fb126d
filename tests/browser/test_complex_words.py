"""ComplexWordExplorer in JupyterLab and as a file, against the arrows that Python holds."""

import json
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook

pytestmark = pytest.mark.browser

MAKE = """
import torch
from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab_widgets.complex_words import ComplexWordExplorer
torch.manual_seed(3)
words = ComplexEmbedding(9, 6)
before = ComplexEmbedding(9, 6)
shown = {2: "the", 4: "of", 7: "class"}
explorer = ComplexWordExplorer(words, shown, initial=before, positions=7)
explorer.save_html("words.html", title="<Words>")
explorer
"""
ASK = """
import json
chosen = {name: getattr(explorer, name) for name in ("first", "second", "dimension", "stage")}
print(json.dumps(chosen | {"arrows": torch.view_as_real(explorer.arrows()).tolist()}))
"""
ARROWS = """root => [...root.querySelectorAll("[data-arrow]")].map(line => [
    line.dataset.arrow, line.x2.baseVal.value - line.x1.baseVal.value,
    line.y1.baseVal.value - line.y2.baseVal.value])"""


notebook = in_a_notebook("complex_words", MAKE, ASK)


def check_arrows(root: Any, arrows: list[Any]) -> None:
    """Drawn arrows are Python's, up to one common scale."""
    drawn = {name: (x, y) for name, x, y in root.evaluate(ARROWS)}
    assert len(drawn) == len(arrows) * 7
    longest = max((x * x + y * y) ** 0.5 for row in arrows for x, y in row)
    radius = max((x * x + y * y) ** 0.5 for x, y in drawn.values())
    for word, row in enumerate(arrows):
        for position, (x, y) in enumerate(row):
            found = drawn[f"{word}-{position}"]
            assert abs(found[0] / radius - x / longest) < 0.01
            assert abs(found[1] / radius - y / longest) < 0.01


def test_what_is_chosen_is_drawn_and_known_to_python(notebook: Any, expect: Any) -> None:
    root = notebook.output(0).get_by_test_id("complex-words")
    root.get_by_test_id("first").select_option("2")
    root.get_by_test_id("stage").select_option("initial")
    root.locator('[data-point="0-3"]').dispatch_event("click")
    expect(root.get_by_test_id("summary")).to_contain_text("class")
    notebook.page.wait_for_timeout(1500)  # the kernel hears of one change after the other
    notebook.run(1)
    said = json.loads(notebook.output(1).inner_text())
    assert (said["first"], said["second"], said["dimension"]) == (2, 1, 3)
    assert said["stage"] == "initial"
    check_arrows(root, said["arrows"])


def across(root: Any) -> float:
    """The units of the drawing, which are pixels at any width."""
    return float(root.get_by_test_id("drawing").get_attribute("viewBox").split()[2])


def test_the_saved_file_is_alive_and_fits(
    page: Any, lab: Any, notebook: Any, expect: Any, soon: Any
) -> None:
    page.goto((lab.folder / "words.html").as_uri())
    root = page.get_by_test_id("complex-words")
    expect(root.get_by_test_id("sum")).to_be_attached()  # a level line has no height
    for wide in (700, 1408, 993):
        page.set_viewport_size({"width": wide, "height": 760})
        soon(lambda: across(root), lambda room: abs(room - root.bounding_box()["width"]) < 60)
        assert root.bounding_box()["height"] <= 760
    label = root.get_by_text("untrained", exact=True)
    assert label.count() == int(root.get_by_test_id("stage").input_value() == "initial")
    for stage, count in (("trained", 0), ("initial", 1)):
        root.get_by_test_id("stage").select_option(stage)
        expect(label).to_have_count(count)
    root.get_by_test_id("second").select_option("-1")
    expect(root.get_by_test_id("sum")).to_have_count(0)
    assert len(root.evaluate(ARROWS)) == 7
