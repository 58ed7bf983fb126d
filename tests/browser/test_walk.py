"""Walk in JupyterLab and as a file: its numbers are PyTorch's, its buttons do what they say."""

import re
from base64 import b64decode
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.lens.watch import watch
from attnlab.pretrained import load
from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, saved, slide, told
from tests.widgets.test_walk import silenced

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets import Walk
walk = Walk()
walk.save_html("walk.html", title="<Walk>")
walk
"""
ASK = """
import json
print(json.dumps({"said": walk.description(), "text": walk.text, "silent": walk.silent,
                  "step": walk.step, "at": walk.at, "temperature": walk.temperature,
                  "top_k": walk.top_k, "seed": walk.seed}))
"""
TEXT = "uncopyrightablesuncopy"


def begin(walk: Any) -> None:
    walk.get_by_test_id("text").fill(TEXT)
    slide(walk, "step", 20)
    walk.get_by_test_id("look-0").click()
    for head in ("0.0", "0.1", "1.0", "1.1"):
        switch = walk.get_by_test_id(f"switch-{head}")
        if switch.get_attribute("aria-checked") == "false":
            switch.click()
    walk.page.mouse.move(0, 0)
    walk.get_by_test_id("summary").filter(
        has_text="gives 1.00 of its weight to “r” (6)."
    ).wait_for()


notebook = in_a_notebook("walk", MAKE, ASK)
walk = in_both("walk", "walk.html", begin)


def answer(walk: Any) -> list[str]:
    return str(walk.get_by_test_id("answer").locator(".wk-row").first.inner_text()).split()


# ------------------------------------------------------------------------------------- the numbers

COUNT, EACH = 256, 64
PASSES = """(root, inputs) => {
  const numbers = inputs.map(([tokens, silent]) => {
    const run = root.pass(tokens, silent);
    return [run.logits, run['0.weight'], run['1.weight']];
  }).flat();
  const whole = new Float64Array(numbers.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of numbers) { whole.set(one, at); at += one.length; }
  const bytes = new Uint8Array(whole.buffer);
  let text = '';
  for (let from = 0; from < bytes.length; from += 8192)
    text += String.fromCharCode(...bytes.subarray(from, from + 8192));
  return btoa(text);
}"""
HEADS = [(layer, head) for layer in range(2) for head in range(2)]
SILENT = [list(some) for count in range(5) for some in combinations(HEADS, count)]


def inputs() -> list[tuple[list[int], list[Any]]]:
    """Texts of 1 to 64 letters, of each length two that repeat, each with other heads silent."""
    draw = np.random.default_rng(37)
    found = []
    for at in range(COUNT):
        again, n = at // 64, 1 + at % 64
        tokens = draw.integers(64, size=n)
        if (at + again) % 2:  # a run that repeats, as in the training
            tokens = np.resize(draw.permutation(64)[: draw.integers(2, 33)], n)
        found.append((tokens.tolist(), [list(head) for head in SILENT[(at + 5 * again) % 16]]))
    return found


def test_the_page_computes_what_pytorch_computes(page: Any, tmp_path: Any) -> None:
    """Logits and the weights of every head, for texts of every length and all choices of heads.

    The page has PyTorch's parameters exactly, and computes in double precision; so does PyTorch
    here. In single precision PyTorch differs from that by its own rounding, some 3e-5 of a logit.
    """
    from attnlab_widgets.walk import Walk

    root = saved(page, Walk().save_html(tmp_path / "walk.html"), "walk")
    model = load("induction")[0]
    cut = {str([list(head) for head in some]): silenced(model, some) for some in SILENT}
    worst, compared, heads = 0.0, 0, set()
    given = inputs()
    for start in range(0, COUNT, EACH):
        part = given[start : start + EACH]
        found = np.frombuffer(b64decode(root.evaluate(PASSES, part)), "<f8")
        for tokens, silent in part:
            with torch.no_grad(), watch(chosen := cut[str(silent)]) as seen:
                logits = chosen(torch.tensor([tokens]))[0]
            for wanted in (logits, *(record.weights[0] for record in seen)):
                size = wanted.numel()
                near = np.abs(found[:size] - wanted.numpy().ravel()).max()
                worst, found = max(worst, float(near)), found[size:]
            compared += 1
            heads |= {tuple(head) for head in silent}
        assert not found.size
    assert compared == COUNT
    assert heads == set(HEADS)
    assert worst < 1e-5
    assert worst < 1e-10, "what double precision leaves"


# ------------------------------------------------------------------------------------- the buttons


def test_typing_moves_the_walk_to_another_text(walk: Any, expect: Any, soon: Any) -> None:
    before = pixels(walk.get_by_test_id("map"))
    walk.get_by_test_id("text").fill("ambidextrouslyambi")
    soon(lambda: "“i” (17) gives" in said(walk), True)
    soon(lambda: pixels(walk.get_by_test_id("map")) != before, True)
    assert answer(walk)[0] == "d"
    cells = walk.get_by_test_id("strip").locator("[role=option]")
    soon(cells.count, 18)
    expect(cells.nth(17)).to_have_attribute(
        "aria-label", "i, letter 17: the model expected i, right"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Type at least one letter: the model answers what comes after a text."),
        ("hello world", "The model does not know U+0020."),
        ("<img src=x onerror=alert(1)>", "The model does not know “<”."),
        ("ab\u202e", "The model does not know U+202E."),
        ("a" * 10_000, "That is 10,000 tokens, and this model has positions for 64."),
    ],
)
def test_what_it_cannot_read_is_said_and_the_picture_stays(
    walk: Any, expect: Any, text: str, sentence: str
) -> None:
    before = said(walk)
    walk.get_by_test_id("text").fill(text)
    refusal = walk.get_by_test_id("refusal")
    expect(refusal).to_contain_text(sentence)
    expect(refusal).to_contain_text("Shown is the last text that it could read.")
    assert said(walk) == before
    walk.get_by_test_id("text").fill(TEXT)
    expect(refusal).to_be_hidden()


def test_a_silent_head_changes_the_answer(walk: Any, expect: Any, soon: Any) -> None:
    assert answer(walk) == ["r", "99.8", "%"]
    walk.get_by_test_id("switch-0.1").click()
    expect(walk.get_by_test_id("switch-0.1")).to_have_attribute("aria-checked", "false")
    walk.get_by_test_id("switch-1.0").click()
    walk.get_by_test_id("switch-1.1").click()
    soon(lambda: answer(walk)[0] != "r", True)
    expect(walk.get_by_test_id("whole")).to_have_text(
        "With all heads (the thin lines): “r” 99.8 %."
    )
    assert "It is silent: nothing that it gathers is passed on." in said(walk)
    expect(walk.get_by_test_id("live")).to_contain_text("With all heads: “r” 99.8 %.")


def test_it_goes_through_every_step(walk: Any, expect: Any, soon: Any) -> None:
    seen = set()
    for step in range(32):
        slide(walk, "step", step)
        soon(lambda step=step: said(walk).startswith(f"Step {step + 1} of 32, "), True)
        seen.add(pixels(walk.get_by_test_id("map")))
    assert len(seen) == 32
    for part in ("letters", "layer-0", "layer-1", "answer"):
        walk.get_by_test_id(f"part-{part}").click()
        soon(lambda part=part: f", {part.replace('-', ' ')}: " in said(walk), True)
        names = walk.locator(".wk-names button:visible")
        for at in range(names.count()):
            names.nth(at).click()
            expect(names.nth(at)).to_have_attribute("aria-current", "true")


def test_it_plays(walk: Any, soon: Any) -> None:
    slide(walk, "step", 30)
    soon(lambda: said(walk).startswith("Step 31"), True)
    play = walk.get_by_test_id("play")
    play.click()
    soon(lambda: said(walk).startswith("Step 32 of 32, answer: probabilities."), True)
    soon(play.inner_text, "Play")
    play.click()
    soon(lambda: re.match("Step [1-9] ", said(walk)) is not None, True)
    play.click()
    soon(play.inner_text, "Play")


def test_letters_are_written_and_taken_away(walk: Any, expect: Any) -> None:
    text = walk.get_by_test_id("text")
    walk.get_by_test_id("more").click()
    slide(walk, "temperature", 0)
    slide(walk, "top-k", 1)
    walk.page.keyboard.press("Escape")
    walk.get_by_test_id("next").click()
    expect(text).to_have_value(TEXT + "r")
    walk.get_by_test_id("many").click()
    expect(text).to_have_value(TEXT + "rightable")
    walk.get_by_test_id("back").click()
    expect(text).to_have_value(TEXT + "rightabl")
    for _ in range(5):
        walk.get_by_test_id("many").click()
    expect(walk.get_by_test_id("refusal")).to_have_text(
        "The text is full: this model has positions for 64 tokens."
    )
    assert len(text.input_value()) == 64
    walk.get_by_test_id("back").click()
    expect(walk.get_by_test_id("refusal")).to_be_hidden()


def test_the_seed_decides_what_is_drawn(walk: Any, expect: Any, soon: Any) -> None:
    text, written = walk.get_by_test_id("text"), []
    walk.get_by_test_id("more").click()
    slide(walk, "temperature", 2)
    slide(walk, "top-k", 64)
    for seed in ("1", "1", "2"):
        text.fill("abc")
        if not walk.get_by_test_id("seed").is_visible():
            walk.get_by_test_id("more").click()
        walk.get_by_test_id("seed").fill(seed)
        walk.get_by_test_id("seed").press("Enter")
        walk.get_by_test_id("many").click()
        soon(lambda: len(text.input_value()), 11)
        written.append(text.input_value())
    assert written[0] == written[1] != written[2]
    walk.page.keyboard.press("Escape")


def test_letters_rows_and_heads_are_chosen(walk: Any, expect: Any, soon: Any) -> None:
    walk.get_by_test_id("letter-18").click()
    soon(lambda: "“c” (18) gives" in said(walk), True)
    expect(walk.get_by_test_id("asked")).to_have_text("What comes after “c” (18)?")
    expect(walk.get_by_test_id("whole")).to_have_text("In the text comes “o”.")
    walk.get_by_test_id("letter-18").press("ArrowRight")
    soon(lambda: "“o” (19) gives" in said(walk), True)
    walk.get_by_test_id("head-0.1").click()
    soon(lambda: said(walk).startswith("Step 8 of 32, layer 0: weights."), True)
    assert "Head 0.1: “o” (19) gives" in said(walk)
    walk.get_by_test_id("look-0").click()
    soon(lambda: "Head 0.0: “o” (19) gives" in said(walk), True)
    canvas = walk.get_by_test_id("map")
    canvas.focus()
    canvas.press("ArrowUp")
    soon(lambda: "“c” (18) gives" in said(walk), True)
    canvas.press("ArrowRight")
    expect(walk.get_by_test_id("readout")).to_contain_text("“c” (18) and “u” (0): 0.")
    canvas.hover(position={"x": 34, "y": 16 + 250 * 17.5 / 22})
    expect(walk.get_by_test_id("readout")).to_contain_text("“n” (17) and “u” (0): 0.")
    box = canvas.bounding_box()
    canvas.hover(position={"x": 34, "y": 16 + 250 * 21.5 / 22})
    canvas.click(position={"x": 34, "y": 16 + 250 * 21.5 / 22})
    soon(lambda: "“y” (21) gives" in said(walk), True)
    assert box["height"] > 300


def test_the_tables_hold_the_numbers(walk: Any, soon: Any) -> None:
    opener = walk.get_by_test_id("as-tables").locator("summary")
    opener.click()
    rows = walk.get_by_test_id("step-table").locator("tbody tr")
    soon(rows.count, 22)
    assert rows.nth(6).inner_text().split("\t") == ["“r” (6)", "0.9992"]
    best = walk.get_by_test_id("answer-table").locator("tbody tr").first.inner_text().split("\t")
    assert [best[0], best[2]] == ["r", "99.8 %"]
    opener.click()


def test_python_hears_and_writes_the_same(notebook: Any, soon: Any) -> None:
    walk = notebook.output(0).get_by_test_id("walk")
    begin(walk)
    walk.get_by_test_id("more").click()
    slide(walk, "temperature", 1.5)
    slide(walk, "top-k", 9)
    walk.page.keyboard.press("Escape")
    walk.get_by_test_id("switch-1.1").click()
    found = told(notebook, lambda now: now["silent"] == [[1, 1]] and now["top_k"] == 9)
    assert found["said"] == said(walk)
    state = {key: found[key] for key in ("text", "silent", "temperature", "top_k", "seed")}
    from attnlab_widgets.walk import Walk

    python = Walk(**state)
    python.write(8)
    walk.get_by_test_id("many").click()
    assert told(notebook, lambda now: len(now["text"]) == 30)["text"] == python.text


def test_the_focus_is_seen_and_stays(page: Any, lab: Any, notebook: Any, expect: Any) -> None:
    walk = saved(page, lab.folder / "walk.html", "walk")
    walk.get_by_test_id("text").fill("ab")
    back = walk.get_by_test_id("back")
    back.click()
    expect(back).to_have_attribute("aria-disabled", "true")
    expect(back).to_be_focused()
    walk.get_by_test_id("letter-0").focus()
    page.keyboard.press("Home")
    outline = "node => getComputedStyle(node).outlineWidth"
    assert walk.get_by_test_id("letter-0").evaluate(outline) == "3px"
    walk.get_by_test_id("look-1").focus()
    slide(walk, "step", 0)
    walk.get_by_test_id("look-1").wait_for(state="detached")
    assert page.evaluate("document.activeElement.tagName") != "BODY"


def test_probabilities_have_their_own_legend(
    page: Any, lab: Any, notebook: Any, expect: Any
) -> None:
    walk = saved(page, lab.folder / "walk.html", "walk")
    slide(walk, "step", 31)
    expect(walk.get_by_test_id("probability-legend")).to_have_text("probability 01")
    expect(walk.get_by_test_id("weight-legend")).to_have_count(0)
    expect(walk.locator("h1")).to_have_text("<Walk>")


# --------------------------------------------------------------------------------------- the sizes


@pytest.mark.parametrize("wide", [390, 700, 993])
@pytest.mark.parametrize("step", [0, 7, 13, 30, 31])
def test_a_page_fits(
    page: Any, lab: Any, notebook: Any, overlapping: Any, soon: Any, wide: int, step: int
) -> None:
    walk = saved(page, lab.folder / "walk.html", "walk", wide)
    slide(walk, "step", step)
    soon(lambda: said(walk).startswith(f"Step {step + 1} "), True)
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert overlapping(walk) == []


@pytest.mark.parametrize("wide", [390, 993])
def test_the_picture_stands_still_while_the_slider_moves(
    page: Any, lab: Any, notebook: Any, wide: int
) -> None:
    walk = saved(page, lab.folder / "walk.html", "walk", wide)
    found = set()
    for step in range(32):
        slide(walk, "step", step)
        page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        found.add(walk.get_by_test_id("map").bounding_box()["y"])
    assert len(found) == 1
