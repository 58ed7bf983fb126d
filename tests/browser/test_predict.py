"""The question that waits for an answer, by mouse and by keyboard alone."""

from typing import Any

import pytest

pytestmark = pytest.mark.browser

ASK = """
from attnlab_widgets.predict import predict
from attnlab.figures.maps import heat_map
predict("Where does <head 3> look?", ["one back", "far back"], "one back", "It copies & shifts.",
        lambda: heat_map([[1.0, 0.0], [0.25, 0.75]], ["a", "b"], title="The map"))
"""


@pytest.fixture(scope="module")
def asked(opened: Any) -> Any:
    notebook = opened("predictions.ipynb", [ASK, ASK, ASK])
    notebook.run_all()
    return notebook


def test_by_mouse(asked):
    shown = asked.output(0)
    assert "Where does <head 3> look?" in shown.inner_text()
    assert "It copies" not in shown.inner_text()
    commit = shown.get_by_role("button", name="Commit, then look")
    assert commit.is_disabled()
    shown.get_by_label("far back").check()
    commit.click()
    status = shown.get_by_role("status")
    status.wait_for()
    assert "You said far back. It is: one back. It copies & shifts." in status.inner_text()
    shown.locator(".js-plotly-plot").wait_for()
    asked.screenshot("predict-mouse")
