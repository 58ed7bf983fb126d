"""CircuitBoard in JupyterLab and as a file: a click cuts a wire, and the numbers are PyTorch's."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.pretrained import load
from tests.browser.widget_pages import in_a_notebook, in_both, said, saved, slide, told
from tests.widgets.test_circuit_board import by_hooks, drawn, some_cuts

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets import CircuitBoard
board = CircuitBoard()
board.save_html("circuit.html", title="<The circuit board>")
board
"""
ASK = """
import json
print(json.dumps({"said": board.description(), "cuts": board.cuts, "instead": board.instead,
                  "at": board.at, "text": board.text, "least": board.least}))
"""
TEXT = "uncopyrightablesuncopy"
WHOLE = "The model writes “r” with 99.8 %."


def begin(board: Any) -> None:
    board.get_by_test_id("text").fill(TEXT)
    board.get_by_test_id("instead").select_option("another text")
    if board.get_by_test_id("all-back").get_attribute("aria-disabled") == "false":
        board.get_by_test_id("all-back").click()
    board.page.mouse.move(0, 0)
    board.get_by_test_id("summary").filter(has_text=f"{WHOLE} After “y” came “r”").wait_for()
    board.and_(board.page.locator("[data-whole=true]")).wait_for()


notebook = in_a_notebook("circuit", MAKE, ASK)
board = in_both("circuit-board", "circuit.html", begin)


def containing(text: str) -> Any:
    return re.compile(re.escape(text))


def wire(board: Any, name: str) -> Any:
    """A wire of the board, by what is said of it."""
    return board.get_by_test_id("board").get_by_role("switch", name=f"The wire {name}")


KEY = "from head 0.1 into the key of head 1.1"
CUT = f"With the wire {KEY} cut, the model writes “a” with 41.2 % instead of “r” with 99.8 %."

PASSES = """(root, cases) => cases.map(([tokens, cuts, instead, through]) => {
  const given = Object.fromEntries(Object.entries(instead).map(
    ([name, x]) => [name, Float64Array.from(x)]));
  const { logits } = root.pass(tokens, cuts, given, through);
  return [...logits.subarray(logits.length - 64)];
})"""


@torch.no_grad()
def test_the_page_computes_what_the_model_computes(page: Any, tmp_path: Any) -> None:
    """The copier itself with hooks in float64, on 300 random texts, each with one to four cuts."""
    from attnlab_widgets.circuit_board import CircuitBoard

    python = CircuitBoard()
    root = saved(page, python.save_html(tmp_path / "circuit.html"), "circuit-board")
    model = load("induction")[0].double().eval()
    worst, seen = 0.0, set()
    for start in range(0, 300, 50):
        cases, wanted = [], []
        for at in range(start, start + 50):
            tokens, cuts = drawn(at, 64, 16), some_cuts(python.wires, at)
            python.text = "".join(python.network.names[token] for token in tokens)
            python.instead = ("zeros", "the mean", "another text")[at % 3]
            python.order, through = at, at % 5 > 0
            instead = python.replaced()
            own = {sender: instead[sender].flatten().tolist() for sender, _ in cuts}
            cases.append([tokens, [list(each) for each in cuts], own, through])
            wanted.append(by_hooks(model, tokens, cuts, instead, through)[-1].tolist())
            seen |= set(cuts)
        found = root.evaluate(PASSES, cases)
        worst = max(worst, float(np.abs(np.array(found) - np.array(wanted)).max()))
    assert seen == set(python.wires)
    assert worst < 1e-9


def test_a_click_cuts_a_wire_and_the_answer_changes(board: Any, expect: Any, soon: Any) -> None:
    expect(board.get_by_test_id("answer").locator(".cb-row").first).to_contain_text("99.8 %")
    line = wire(board, KEY)
    expect(line).to_have_attribute("aria-checked", "true")
    line.dispatch_event("click")
    expect(board.get_by_test_id("summary")).to_have_text(CUT)
    expect(line).to_have_attribute("aria-checked", "false")
    expect(board.get_by_test_id("answer").locator(".cb-row").first).to_contain_text("→ 0.2 %")
    expect(board.get_by_test_id("chip-logits")).to_have_text("logits: “a” 41.2 %")
    expect(board.get_by_test_id("live")).to_have_text(CUT)
    line.dispatch_event("click")
    soon(lambda: said(board).startswith(WHOLE), True)


def test_the_mouse_hits_the_wire_that_it_sees(board: Any, expect: Any) -> None:
    """A thick wire, in the middle of its last bend."""
    board.get_by_test_id("board").scroll_into_view_if_needed()
    place = wire(board, "from head 1.1 to the logits").evaluate(
        "group => { group.scrollIntoView({block: 'center'});"
        " const path = group.querySelector('.cb-wire');"
        " const at = path.getPointAtLength(path.getTotalLength() / 2);"
        " const box = path.ownerSVGElement.getBoundingClientRect();"
        " return [at.x + box.x, at.y + box.y]; }"
    )
    board.page.mouse.click(*place)
    expect(board.get_by_test_id("summary")).to_contain_text(
        "With the wire from head 1.1 to the logits cut"
    )


def test_the_keyboard_goes_from_wire_to_wire_and_cuts(board: Any, expect: Any, soon: Any) -> None:
    first = wire(board, "from the letters into the value of head 0.1")
    expect(first).to_have_attribute("tabindex", "0")
    first.focus()
    board.page.keyboard.press("ArrowDown")
    second = wire(board, KEY)
    expect(second).to_be_focused()
    expect(board.get_by_test_id("readout")).to_contain_text(f"The wire {KEY}: cut alone, “r” goes")
    board.page.keyboard.press("Space")
    expect(board.get_by_test_id("summary")).to_have_text(CUT)
    expect(second).to_be_focused()
    board.page.keyboard.press("Enter")
    soon(lambda: said(board).startswith(WHOLE), True)


def test_the_list_cuts_and_undo_takes_back(board: Any, expect: Any, soon: Any) -> None:
    rows = board.get_by_test_id("list").get_by_role("switch")
    expect(rows).to_have_count(9)
    rows.nth(1).click()
    rows.nth(2).click()
    expect(board.get_by_test_id("summary")).to_contain_text("With 2 wires cut, the model writes")
    board.get_by_test_id("undo").click()
    expect(board.get_by_test_id("summary")).to_have_text(CUT)
    board.get_by_test_id("undo").click()
    soon(lambda: said(board).startswith(WHOLE), True)
    rows.nth(1).press("ArrowDown")
    expect(rows.nth(2)).to_be_focused()


def test_what_a_cut_wire_carries_is_said_and_changed(board: Any, expect: Any) -> None:
    expect(board.get_by_test_id("carried")).to_have_text(
        "what its sender makes of “iuhascorteypgnlbiuhasc”"
    )
    places = wire(board, "from the places into the key of head 0.1")
    expect(places).to_have_attribute("aria-label", containing("as places are the same in both"))
    board.get_by_test_id("instead").select_option("zeros")
    expect(board.get_by_test_id("carried")).to_contain_text("zeros in the place")
    expect(places).to_have_attribute("aria-label", containing("goes from 99.8 % to 0.0 %"))
    board.get_by_test_id("instead").select_option("another text")


def test_the_other_text_can_be_another(page: Any, lab: Any, notebook: Any, expect: Any) -> None:
    """In a page of its own, as what other tests expect is that of the first text."""
    board = saved(page, lab.folder / "circuit.html", "circuit-board")
    carried = board.get_by_test_id("carried")
    expect(carried).to_contain_text("iuhascorteypgnlbiuhasc")
    board.get_by_test_id("reorder").click()
    expect(carried).not_to_contain_text("iuhascorteypgnlbiuhasc")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Type at least one letter: the model answers what comes after a text."),
        ("hello world", "The model does not know U+0020."),
        ("<img src=x onerror=alert(1)>", "The model does not know “<”."),
        ("a" * 10_000, "That is 10,000 tokens, and this model has positions for 64."),
    ],
)
def test_what_it_cannot_read_is_said(board: Any, expect: Any, text: str, sentence: str) -> None:
    board.get_by_test_id("text").fill(text)
    expect(board.get_by_test_id("refusal")).to_contain_text(sentence)
    assert said(board).startswith(WHOLE)


def test_another_text_and_place(board: Any, expect: Any) -> None:
    board.get_by_test_id("text").fill("ambidextrouslyambi")
    expect(board.get_by_test_id("asked")).to_have_text("What comes after “i” (17)?")
    board.get_by_test_id("letter-15").click()
    expect(board.get_by_test_id("summary")).to_contain_text("After “m” came “b” the last time.")


def test_the_slider_says_what_is_grey(board: Any, expect: Any) -> None:
    grey = board.locator(".cb-grey")
    expect(grey).to_have_count(33)
    slide(board, "least", 0.5)
    expect(grey).to_have_count(33)
    board.get_by_test_id("more").click()
    board.get_by_test_id("measure").select_option("logit")
    expect(grey).not_to_have_count(33)
    board.get_by_test_id("measure").select_option("probability")
    expect(grey).to_have_count(33)
    board.page.keyboard.press("Escape")
    slide(board, "least", 0.05)


def test_python_hears_what_is_cut(notebook: Any) -> None:
    board = notebook.output(0).get_by_test_id("circuit-board")
    begin(board)
    wire(board, KEY).dispatch_event("click")
    found = told(notebook, lambda now: now["cuts"] == [["0.1", "1.1 key"]])
    assert found["said"] == CUT


@pytest.mark.parametrize("wide", [390, 700, 993])
def test_a_page_fits(
    page: Any, lab: Any, notebook: Any, overlapping: Any, expect: Any, wide: int
) -> None:
    board = saved(page, lab.folder / "circuit.html", "circuit-board", wide)
    board.and_(page.locator("[data-whole=true]")).wait_for()
    page.wait_for_timeout(900)  # what is read out comes half a second after the last change
    assert board.get_by_test_id("live").inner_text() == ""
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert overlapping(board) == []
    spilled = board.locator(".cb-chip").evaluate_all(
        "chips => chips.filter(chip => { const all = chip.querySelector('rect').getBBox();"
        " return [...chip.querySelectorAll('text')].some(text => text.getBBox().x < 0 ||"
        " text.getBBox().x + text.getBBox().width > all.width); }).map(chip => chip.textContent)"
    )
    assert spilled == []
