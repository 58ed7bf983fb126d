"""HeadSwitchboard in JupyterLab and as a file: switches, lamps, the sentence, the chart."""

import json
import re
from typing import Any

import pytest
from attnlab_widgets.head_switchboard import HeadSwitchboard

from attnlab.pretrained import load
from tests.browser.widget_pages import in_a_notebook, in_both, pixels

pytestmark = pytest.mark.browser

MAKE = """
import attnlab
from attnlab_widgets import HeadSwitchboard
copier, _ = attnlab.pretrained.load("induction")
board = HeadSwitchboard(copier, "uncopyrightables" * 2)
board.save_html("board.html", title="<Board>")
board
"""
ASK = """
import json
print(json.dumps({"silent": board.silent, "right": board.right().tolist(),
                  "guesses": board.guesses(), "said": board.description(),
                  "writers": board.writers(), "of_21": board.writers(21)}))
"""


def begin(board: Any) -> None:
    board.get_by_test_id("all-on").click()
    board.get_by_test_id("summary").filter(has_text="With all 4 heads").wait_for()


notebook = in_a_notebook("head_switchboard", MAKE, ASK)
board = in_both("head-switchboard", "board.html", begin)


def kinds(board: Any) -> list[str]:
    found: list[str] = board.locator(".hs-lamp").evaluate_all("all => all.map(x => x.dataset.kind)")
    return found


def map_of(board: Any, head: str) -> str:
    return pixels(board.get_by_test_id(f"head-{head}").locator("canvas"))


def test_a_needed_head_darkens_letters(board: Any, expect: Any) -> None:
    assert kinds(board) == ["never"] * 16 + ["right"] * 15
    before = {head: map_of(board, head) for head in ("0.0", "1.0")}
    board.get_by_test_id("switch-0.1").click()
    expect(board.get_by_test_id("switch-0.1")).to_have_attribute("aria-checked", "false")
    expect(board.get_by_test_id("summary")).to_contain_text(
        "Without head 0.1, 8 of the 15 letters that"
    )
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
    expect(board.get_by_test_id("summary")).to_contain_text(
        "Without heads 1.0 and 1.1, 0 of the 15"
    )
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


def parts_of(board: Any) -> dict[str, float]:
    """The bars by name, as the page holds them."""
    read = "all => all.map(x => [x.dataset.part, Number(x.dataset.value)])"
    return dict(board.get_by_test_id("parts").locator("g").evaluate_all(read))


def test_bars_say_who_writes_a_letter_and_sum_to_its_logit(board: Any, expect: Any) -> None:
    """In the notebook and in the file, which has no kernel."""
    expect(board.get_by_test_id("writes")).to_contain_text("that repeat? (mean of 15)")
    board.get_by_test_id("token-21").hover()
    expect(board.get_by_test_id("writes")).to_have_text("Who writes “y” here?")
    whole = parts_of(board)
    total = whole.pop("sum")
    assert sum(whole.values()) == pytest.approx(total, abs=1e-4)
    line = board.get_by_test_id("sum").inner_text().replace("−", "-")
    numbers = [float(found) for found in re.findall(r"-?\d+\.\d\d", line)]
    assert len(numbers) == 3
    assert numbers[0] == pytest.approx(total, abs=0.0051)
    assert numbers[0] == pytest.approx(numbers[1] - numbers[2], abs=0.021)
    copier, _ = load("induction")
    python = HeadSwitchboard(copier, "uncopyrightables" * 2).writers(21)
    assert whole == pytest.approx(python, abs=1e-3)
    at = board.get_by_test_id("token-21").bounding_box()
    board.get_by_test_id("token-20").hover()
    assert board.get_by_test_id("token-21").bounding_box() == at, "letters stay where they are"
    board.get_by_test_id("switch-0.1").click()
    board.get_by_test_id("token-22").hover()
    expect(board.get_by_test_id("writes")).to_have_text("Who writes “r” here?")
    now = parts_of(board)
    assert now["head 0.1"] == 0
    assert now["sum"] < 0.7 * total


def test_the_largest_parts_are_read_out_after_a_pause(board: Any, expect: Any) -> None:
    board.get_by_test_id("token-20").focus()
    board.page.keyboard.press("ArrowRight")
    expect(board.get_by_test_id("live")).to_contain_text("Who writes “y” here? Most: ")
    whole = parts_of(board)
    whole.pop("sum")
    two = sorted(whole, key=lambda name: -abs(whole[name]))[:2]
    said = board.get_by_test_id("live").inner_text()
    assert re.search(rf"Most: {two[0]} [+−]\d+\.\d\d, {two[1]} [+−]\d+\.\d\d\. The bars", said)
    assert board.get_by_test_id("sum").inner_text() in said


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
    board.page.mouse.move(0, 0)
    shown = parts_of(board)
    assert shown.pop("sum") == pytest.approx(sum(said["writers"].values()), abs=1e-3)
    assert shown == pytest.approx(said["writers"], abs=1e-3)
    assert said["writers"] != said["of_21"]
