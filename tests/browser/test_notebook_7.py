"""The widgets in Jupyter Notebook 7, which shares its parts, but not its page, with JupyterLab."""

import re
from typing import Any

import numpy as np
import pytest
from attnlab_widgets.attention_explorer.models import reference_model

pytestmark = pytest.mark.browser

CELLS = (
    """
import numpy as np
from attnlab_widgets.attention_view import AttentionView
maps = np.random.default_rng(3).dirichlet(np.full(7, 0.4), size=(3, 5, 7)).astype("float32")
np.save("maps.npy", maps)
view = AttentionView(maps, list("abcdefg"))
view
""",
    """
from attnlab.figures.maps import heat_map
from attnlab_widgets.predict import ask
ask("Where does it look?", ["one back", "far back"], "one back", "It copies.",
        lambda: heat_map([[1.0, 0.0], [0.25, 0.75]], ["a", "b"], title="The map"))
""",
    """
from attnlab_widgets.attention_explorer import AttentionExplorer
AttentionExplorer("a for loop", untrained={"dim": 8, "layers": 1, "heads": 2}, steps=3)
""",
    "print(view.layer, view.head, view.threshold)",
)


@pytest.fixture(scope="module")
def book(opened_in_7: Any) -> Any:
    book = opened_in_7("widgets.ipynb", CELLS)
    book.run_all()
    return book


def test_the_view_says_what_python_holds_and_is_heard(book, notebook_7):
    view, keys = book.output(0).get_by_test_id("attention-view"), book.page.keyboard
    view.get_by_test_id("head-1-2").click()
    view.get_by_test_id("matrix").focus()
    keys.press("ArrowRight")
    for j, weight in enumerate(np.load(notebook_7.folder / "maps.npy")[1, 2, 0]):
        message = view.get_by_test_id("readout").filter(has_text=f"→ key {j} ")
        assert abs(float(message.inner_text().split(": ")[-1].split(" ")[0]) - weight) < 0.006
        keys.press("ArrowRight")
    book.prints(3, "1 2 0.05")
    with book.dark():
        book.page.locator("[data-theme=dark]").first.wait_for()
        book.screenshot("notebook-7-dark")


def test_the_notebook_leaves_the_keys_to_the_view(book, expect):
    """Its shortcuts move between cells with the same keys, and see them first."""
    view, keys = book.output(0).get_by_test_id("attention-view"), book.page.keyboard
    view.get_by_test_id("head-0-0").click()
    keys.press("ArrowDown")
    keys.press("ArrowRight")
    view.get_by_test_id("threshold").focus()
    keys.press("ArrowRight")
    view.get_by_test_id("matrix").focus()
    keys.press("ArrowDown")
    expect(view.get_by_test_id("readout")).to_have_text(re.compile("query 0 .* → "))
    book.prints(3, "1 1 0.06")


def test_a_prediction_is_committed_and_its_picture_drawn(book, expect):
    shown = book.output(1)
    shown.get_by_label("far back").check()
    shown.get_by_role("button", name="Commit, then look").click()
    message = "→ You said far back. It is: one back. It copies."
    expect(shown.get_by_role("status")).to_have_text(message)
    shown.locator(".js-plotly-plot .main-svg").first.wait_for()
    book.screenshot("notebook-7-prediction")


def test_the_explorer_reads_and_trains(book, expect):
    shown = book.output(2)
    field = shown.get_by_label("Text", exact=True)
    field.fill("while True: pass")
    field.press("Tab")
    views = shown.locator(".attnlab-view")
    count = f"{len(reference_model()[1].encode('while True: pass'))} tokens"
    for view in (views.first, views.last):
        expect(view.get_by_test_id("summary")).to_contain_text(count)
    shown.get_by_role("button", name="Train").click()
    shown.get_by_text("Trained for 3 steps.", exact=False).wait_for()
    shown.get_by_text("Training step", exact=True).locator("visible=true").first.wait_for()
    book.screenshot("notebook-7-explorer")
