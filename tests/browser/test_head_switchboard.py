"""HeadSwitchboard in JupyterLab and as a file: switches, lamps, the sentence, the chart."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.browser

MAKE = """
import attnlab
from attnlab_widgets import HeadSwitchboard
copier, _ = attnlab.pretrained.load("induction")
board = HeadSwitchboard(copier, "uncopyrightables" * 2)
board.save_html("board.html", title="<Board>")
writer, task = attnlab.pretrained.load("documentation")
heads = [(layer, head) for layer in (0, 2) for head in range(4)]
HeadSwitchboard(writer, "if the object is a class, the name of the class", task=task,
                heads=heads).save_html("board-eight.html")
board
"""
ASK = """
import json
print(json.dumps({"silent": board.silent, "right": board.right().tolist(),
                  "guesses": board.guesses(), "said": board.description()}))
"""


@pytest.fixture(scope="module")
def notebook(opened: Any) -> Any:
    notebook = opened("head_switchboard.ipynb", [MAKE, ASK])
    notebook.run_all()
    notebook.output(0).locator("[data-drawn]").wait_for()
    return notebook


@pytest.fixture(params=["JupyterLab", "a saved file"])
def board(request: pytest.FixtureRequest, notebook: Any, lab: Any) -> Any:
    if request.param == "JupyterLab":
        found = notebook.output(0).get_by_test_id("head-switchboard")
    else:
        page = request.getfixturevalue("page")
        page.goto((lab.folder / "board.html").as_uri())
        found = page.get_by_test_id("head-switchboard")
        found.and_(page.locator("[data-drawn]")).wait_for()
    found.get_by_test_id("all-on").click()
    found.get_by_test_id("summary").filter(has_text="With all 4 heads").wait_for()
    return found


def kinds(board: Any) -> list[str]:
    found: list[str] = board.locator(".hs-lamp").evaluate_all("all => all.map(x => x.dataset.kind)")
    return found


def map_of(board: Any, head: str) -> str:
    """The pixels of the map of a head."""
    canvas = board.get_by_test_id(f"head-{head}").locator("canvas")
    found: str = canvas.evaluate("canvas => canvas.toDataURL()")
    return found


def test_a_needed_head_darkens_letters(board: Any, expect: Any) -> None:
    assert kinds(board) == ["never"] * 16 + ["right"] * 15
    before = {head: map_of(board, head) for head in ("0.0", "1.0")}
    board.get_by_test_id("switch-0.1").click()
    expect(board.get_by_test_id("switch-0.1")).to_have_attribute("aria-checked", "false")
    expect(board.get_by_test_id("summary")).to_contain_text("Without head 0.1, 8 of 31 letters")
    now = kinds(board)
    assert (now.count("right"), now.count("lost")) == (8, 7)
    dark = board.locator("[data-kind=lost]").first
    assert dark.locator(".hs-sign").inner_text() == "✗"
    assert dark.locator(".hs-guess").inner_text() != dark.locator(".hs-token").inner_text()
    assert "wrong, but right with all heads" in (dark.get_attribute("aria-label") or "")
    assert map_of(board, "0.0") == before["0.0"], "layer 0 has no switches below it"
    assert map_of(board, "1.0") != before["1.0"]


def test_either_of_two_heads_can_go_but_not_both(board: Any, expect: Any) -> None:
    board.get_by_test_id("head-1.0").locator("canvas").click()
    expect(board.get_by_test_id("summary")).to_contain_text("Without head 1.0 the same 15")
    assert "lost" not in kinds(board)
    board.get_by_test_id("switch-1.1").focus()
    board.page.keyboard.press(" ")
    expect(board.get_by_test_id("summary")).to_contain_text("Without heads 1.0 and 1.1, 0 of 31")
    assert kinds(board).count("lost") == 15


def test_the_chart_shows_and_sets_every_choice(board: Any, expect: Any) -> None:
    if not board.get_by_test_id("settings").is_checked():
        board.get_by_test_id("settings").click()
    expect(board.get_by_test_id("chart").locator(".hs-setting")).to_have_count(16)
    board.get_by_test_id("setting-12").click()
    expect(board.get_by_test_id("summary")).to_contain_text("Without heads 1.0 and 1.1")
    expect(board.get_by_test_id("switch-1.1")).to_have_attribute("aria-checked", "false")
    heights = [
        float(board.get_by_test_id(f"setting-{state}").locator(".hs-bar").get_attribute("height"))
        for state in (0, 2, 12)
    ]
    assert heights[0] > 1.5 * heights[1] > 3 * heights[2]


def test_a_letter_says_what_the_model_says_there(board: Any, expect: Any) -> None:
    before = map_of(board, "0.1")
    board.get_by_test_id("token-21").hover()
    wanted = "After “p” (row 20 of the maps) the model says “y”; “y” comes."
    expect(board.get_by_test_id("readout")).to_have_text(wanted)
    assert map_of(board, "0.1") != before
    board.get_by_test_id("token-1").focus()
    board.page.keyboard.press("ArrowRight")
    expect(board.get_by_test_id("token-2")).to_be_focused()
    expect(board.get_by_test_id("readout")).to_contain_text("After “n” (row 1 of the maps)")


def test_python_hears_of_it(notebook: Any) -> None:
    board = notebook.output(0).get_by_test_id("head-switchboard")
    board.get_by_test_id("all-silent").click()
    board.get_by_test_id("switch-0.0").click()
    board.get_by_test_id("summary").filter(has_text="Without heads 0.1, 1.0 and 1.1").wait_for()
    notebook.page.wait_for_timeout(1000)
    notebook.run(1)
    said = json.loads(notebook.output(1).inner_text())
    assert said["silent"] == [[0, 1], [1, 0], [1, 1]]
    assert said["said"] == board.get_by_test_id("summary").inner_text()
    assert [kind in ("right", "gained") for kind in kinds(board)] == said["right"]


SIZES = [("board.html", True), ("board.html", False), ("board-eight.html", False)]


@pytest.mark.parametrize(("name", "settings"), SIZES)
@pytest.mark.parametrize(("wide", "high"), [(993, 760), (1408, 760), (700, 900), (480, 1500)])
def test_it_fits(
    page: Any, lab: Any, notebook: Any, wide: int, high: int, name: str, settings: bool
) -> None:
    page.set_viewport_size({"width": wide + 32, "height": 760})
    page.goto((lab.folder / name).as_uri())
    root = page.get_by_test_id("head-switchboard")
    root.and_(page.locator("[data-drawn]")).wait_for()
    if settings:
        root.get_by_test_id("settings").click()
        root.get_by_test_id("chart").locator(".hs-setting").first.wait_for()
    assert root.bounding_box()["width"] == wide
    assert root.bounding_box()["height"] <= high
    right = root.bounding_box()["x"] + wide
    for box in (*root.locator(".hs-card").all(), *root.locator(".hs-lamp").all()):
        place = box.bounding_box()
        assert place["x"] + place["width"] <= right - 15
    assert page.evaluate("document.documentElement.scrollWidth") <= wide + 32
