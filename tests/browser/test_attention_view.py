"""AttentionView in JupyterLab and as a file, against the numbers that Python holds."""

import re
from typing import Any

import numpy as np
import pytest

from attnlab.figures.labels import visible
from tests.browser.widget_pages import told

pytestmark = pytest.mark.browser

HOSTILE = [
    *(
        "<script>document.title = 'taken'</script>",
        "&amp;",
        "שלום",
        "👩‍🚀",
        "\u200b",
        "",
        "\n",
        "k" * 10_000,
    ),
    *("<img src=x onerror=\"document.title='taken'\">", "$x$", "\u202egnp.exe"),
]
MAKE = f"""
import numpy as np
from attnlab_widgets.attention_view import AttentionView
chance = np.random.default_rng(3)
def maps(*shape):
    return chance.dirichlet(np.full(shape[-1], 0.4), size=shape[:-1]).astype("float32")
first, second, cross = maps(3, 5, 7, 7), maps(3, 5, 7, 7), maps(2, 3, 5, 11)
np.savez("maps.npz", first=first, second=second, cross=cross)
hostile = {HOSTILE!r}
view = AttentionView(first, list("abcdefg"))
view.save_html("view.html")
view
"""
CROSS = """
from types import SimpleNamespace
import torch
outputs = SimpleNamespace(cross_attentions=tuple(torch.tensor(cross)[:, None]))
across = AttentionView(outputs, list("vwxyz"), source_tokens=hostile)
across.save_html("across.html", title="<Across>")
across
"""
COMPARED = """
steps, others = {1: first, 30: second}, {1: second, 30: first}
AttentionView(steps, list("abcdefg"), compare=others, names=("soft", "hard"))
"""
FOLLOWED = """
import json
import torch
import attnlab
torch.manual_seed(2)
followed = attnlab.view(attnlab.TinyTransformer(16, dim=64, layers=3, heads=2), torch.arange(16))
followed.layer, followed.head = 2, 1
followed
"""
KNOWN = "print(json.dumps({'query': followed.query, 'origins': followed._origins}))"
STATE = "print(view.layer, view.head, view.query, view.key, view.heads, view.threshold, view.top_k)"


@pytest.fixture(scope="module")
def notebook(opened: Any) -> Any:
    cells = [MAKE, CROSS, COMPARED, STATE, UNEQUAL, FOLLOWED, KNOWN]
    notebook = opened("attention_view.ipynb", cells)
    notebook.run_all()
    for number in range(3):
        notebook.output(number).locator("[data-drawn]").wait_for()
    return notebook


@pytest.fixture(scope="module")
def maps(notebook: Any, lab: Any) -> Any:
    return np.load(lab.folder / "maps.npz")


@pytest.fixture
def view(notebook: Any) -> Any:
    """The first widget, as it was made."""
    return reset(notebook.output(0))


def reset(shown: Any) -> Any:
    view = shown.get_by_test_id("attention-view")
    view.evaluate(FRAME)
    unpin = view.get_by_test_id("unpin")
    if unpin.is_enabled():
        unpin.click()
    view.get_by_test_id("head-0-0").click()
    set_slider(view.get_by_test_id("threshold"), 0.05)
    set_lines(view, 3)
    view.page.mouse.move(0, 0)
    view.evaluate(FRAME)
    return view


# What was done to a view is drawn with the next frame.
FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def set_lines(view: Any, count: int) -> None:
    """How many lines there are per token: behind "More", which Escape closes."""
    view.get_by_test_id("more").click()
    view.get_by_test_id("top-k").fill(str(count))
    view.get_by_test_id("top-k").press("Enter")
    view.get_by_test_id("top-k").press("Escape")


def set_slider(slider: Any, value: float) -> None:
    slider.evaluate(
        "(slider, value) => { slider.value = value;"
        "slider.dispatchEvent(new Event('input', {bubbles: true})) }",
        str(value),
    )


# ------------------------------------------------------------------------------- the same numbers

SAID = re.compile(r"query (\d+) .* → key (\d+) .*: (−|\+)?([\d.]+)(?: ± ([\d.e-]+))?$", re.DOTALL)


def read(view: Any) -> tuple[int, int, float, float]:
    """Query, key, weight and error of what the matrix says."""
    found = SAID.match(view.get_by_test_id("readout").inner_text())
    assert found, view.get_by_test_id("readout").inner_text()
    sign = -1 if found[3] == "−" else 1
    return int(found[1]), int(found[2]), sign * float(found[4]), float(found[5] or 0)


def walked(view: Any, rows: int, columns: int) -> np.ndarray:
    """Every cell, read while the arrow keys walk over the matrix."""
    keyboard, found = view.page.keyboard, np.full((rows, columns), np.nan)
    view.get_by_test_id("matrix").focus()
    keyboard.press("ArrowRight")
    view.evaluate(FRAME)
    for row in range(rows):
        keyboard.press("Home")
        for column in range(columns):
            at = re.compile(rf"query {row} .* → key {column} ", re.DOTALL)
            view.get_by_test_id("readout").filter(has_text=at).wait_for()
            i, j, weight, error = read(view)
            assert error < 0.01
            found[i, j] = weight
            keyboard.press("ArrowRight")
        keyboard.press("ArrowDown")
    keyboard.press("Escape")
    return found


def test_the_matrix_says_what_python_holds(view, maps):
    view.get_by_test_id("head-1-2").click()
    assert np.abs(walked(view, 7, 7) - maps["first"][1, 2]).max() < 0.006


def test_cross_attention_has_rows_and_columns_of_its_own(notebook, maps, expect):
    view = reset(notebook.output(1))
    view.get_by_test_id("head-1-2").click()
    assert np.abs(walked(view, 5, 11) - maps["cross"][1, 2]).max() < 0.006
    expect(view.get_by_test_id("summary")).to_contain_text("5 queries × 11 keys")


def test_pointing_at_a_cell_says_its_weight(view, maps, expect, still):
    view.get_by_test_id("head-2-4").click()
    matrix = view.get_by_test_id("matrix")
    message = view.get_by_test_id("readout")
    box = still(matrix)
    seen = set()
    for share in (0.4, 0.6, 0.8):
        before = message.inner_text()
        matrix.page.mouse.move(box["x"] + 104 + 180 * share, box["y"] + 96 + 180 * share)
        expect(message).not_to_have_text(before)
        i, j, weight, _ = read(view)
        assert abs(weight - maps["first"][2, 4, i, j]) < 0.006
        seen.add((i, j))
    assert len(seen) == 3


def test_hovering_a_query_writes_its_strongest_weights_beside_the_keys(view, maps, shows):
    view.get_by_test_id("head-2-1").click()
    row = maps["first"][2, 1, 3]
    shows(view, row, hovered="query-3", most=3)
    set_lines(view, 1)
    shows(view, row, hovered="query-3", most=1)
    set_lines(view, 0)
    shows(view, row, hovered="query-3", most=7)
    set_slider(view.get_by_test_id("threshold"), 1)
    shows(view, row, hovered="query-3", most=1)


@pytest.fixture
def shows(soon: Any) -> Any:
    def shows(view: Any, row: np.ndarray, *, hovered: str, most: int) -> None:
        """Beside the keys come to stand the strongest weights of the query under the pointer."""
        threshold = float(view.get_by_test_id("threshold").input_value())
        limit = threshold * row.max() * 0.999
        strong = {str(j): row[j] for j in np.argsort(-row)[:most] if row[j] >= limit}

        def right(message: dict[str, str]) -> bool:
            return message.keys() == strong.keys() and all(
                abs(float(message[j]) - weight) < 0.006 for j, weight in strong.items()
            )

        view.page.mouse.move(0, 0)
        view.get_by_test_id(hovered).hover()
        soon(lambda: view.evaluate(HITS), right)

    return shows


HITS = """view => Object.fromEntries([...view.querySelectorAll('.av-hit')].map(key =>
  [key.dataset.testid.split('-')[1], key.querySelector('.av-token-weight').textContent]))"""


def test_a_difference_has_a_sign_and_the_steps_move(notebook, maps):
    view = notebook.output(2).get_by_test_id("attention-view")
    view.get_by_test_id("shown").select_option("difference")
    difference = maps["first"] - maps["second"]
    view.get_by_test_id("head-1-3").click()
    assert np.abs(walked(view, 7, 7) - difference[1, 3]).max() < 0.012
    view.get_by_test_id("step").focus()
    view.page.keyboard.press("Home")
    assert np.abs(walked(view, 7, 7) + difference[1, 3]).max() < 0.012
    view.get_by_test_id("shown").select_option("first")
    assert np.abs(walked(view, 7, 7) - maps["first"][1, 3]).max() < 0.006


def test_what_the_weights_leave_of_one_is_read_beside_them(opened):
    """Half of the first row goes to no key, and a tenth less of each of the others."""
    made = """
import numpy as np
from attnlab_widgets.attention_view import AttentionView
left = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
AttentionView((1 - left)[:, None] * np.full((5, 5), 0.2), list("abcde"))
"""
    notebook = opened("rest.ipynb", [made])
    notebook.run_all()
    view = notebook.output(0).get_by_test_id("attention-view")
    view.get_by_test_id("matrix").focus()
    for row, left in enumerate(("0.50", "0.40", "0.30", "0.20", "0.10")):
        view.page.keyboard.press("ArrowRight" if row == 0 else "ArrowDown")
        wanted = re.compile(rf"query {row} .* · rest {left}$", re.DOTALL)
        view.get_by_test_id("readout").filter(has_text=wanted).wait_for()
    view.get_by_test_id("sort").select_option("sink")
    view.get_by_test_id("head-0-0").filter(has_text="0.300").wait_for()
    assert view.get_by_test_id("sort").locator("option[value=negative]").is_hidden()


def test_hiding_the_first_token_says_so_and_renormalises(view, maps, expect):
    view.get_by_test_id("more").click()
    view.get_by_test_id("hide-first").click()
    view.page.keyboard.press("Escape")
    rest = maps["first"][0, 0, :, 1:]
    found = walked(view, 7, 7)
    assert np.abs(found[:, 1:] - rest / rest.sum(-1, keepdims=True)).max() < 0.02
    assert (found[:, 0] == 0).all()
    message = view.get_by_test_id("status")
    expect(message).to_contain_text("first token hidden")
    view.get_by_test_id("more").click()
    view.get_by_test_id("hide-first").click()
    message.wait_for(state="hidden")


def test_the_tables_name_the_strongest_key_of_each_query(view, maps):
    view.get_by_test_id("head-2-3").click()
    tables = view.get_by_test_id("as-tables")
    tables.locator("summary").click()
    tables.get_by_text("looks most, layer 2 · head 3").wait_for()
    rows = tables.get_by_test_id("weights-table").evaluate(ROWS)
    for i, (row, cells) in enumerate(zip(maps["first"][2, 3], rows, strict=True)):
        query, token, key, _, weight = cells
        assert (int(query), token, int(key)) == (i, "abcdefg"[i], int(row.argmax()))
        assert abs(float(weight.split(" ")[0]) - row.max()) < 0.006
    tables.locator("summary").click()


ROWS = "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(one => one.innerText))"


# ----------------------------------------------------------------------------- hands and keyboards


def test_what_is_clicked_is_known_in_python_and_to_no_other_widget(notebook, view, expect):
    other = notebook.output(1).get_by_test_id("attention-view")
    before = other.inner_text()
    view.get_by_test_id("head-2-3").click()
    view.get_by_test_id("head-0-1").click(modifiers=["Shift"])
    view.get_by_test_id("query-4").click()
    notebook.prints(3, "2 3 4 None [[0, 1]] 0.05 3")
    expect(view.get_by_test_id("line-legend")).to_contain_text("layer 0 · head 1")
    assert other.inner_text() == before


def test_the_model_is_asked_who_wrote_a_score_while_that_is_open(notebook, expect):
    view = notebook.output(5).get_by_test_id("attention-view")
    view.get_by_test_id("word-9").click()
    known = told(notebook, lambda found: found["query"] == 9, cell=6)
    assert known["origins"] == {"unasked": True}
    view.get_by_test_id("why").click()
    expect(view.get_by_test_id("step-1")).to_have_attribute("aria-current", "step")
    assert told(notebook, lambda found: found["query"] == 9, cell=6) == known
    view.get_by_test_id("step-6").click()
    expect(view.get_by_test_id("origins-table")).to_have_count(1)
    told(notebook, lambda found: found["origins"].get("place") == [0, 2, 1, 9], cell=6)
    view.get_by_test_id("word-5").click()
    known = told(notebook, lambda found: found["origins"]["place"] == [0, 2, 1, 5], cell=6)
    expect(view.get_by_test_id("origins-table")).to_have_count(1)
    view.get_by_test_id("why-close").click()
    view.get_by_test_id("word-12").click()
    after = told(notebook, lambda found: found["query"] == 12, cell=6)
    assert after["origins"] == known["origins"]


def test_what_is_seldom_used_opens_over_the_widget_and_closes_again(view, expect):
    more, panel = view.get_by_test_id("more"), view.get_by_test_id("more-panel")
    high = view.bounding_box()["height"]
    more.click()
    expect(panel).to_be_visible()
    expect(more).to_have_attribute("aria-expanded", "true")
    assert view.bounding_box()["height"] == high
    view.get_by_test_id("help").click()
    expect(panel).to_be_hidden()
    expect(view.get_by_test_id("help-panel")).to_contain_text("Shift- or Ctrl-click")
    view.page.mouse.click(5, 5)
    expect(view.get_by_test_id("help-panel")).to_be_hidden()
    more.click()
    view.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(more).to_be_focused()


def test_a_view_that_is_part_of_another_shows_some_panels_only(notebook, view, expect):
    notebook.write(3, "view.panels, view.bar = ['matrix', 'heads'], False")
    notebook.run(3)
    expect(view.get_by_test_id("lines")).to_be_hidden()
    expect(view.get_by_test_id("more")).to_be_hidden()
    expect(view.get_by_test_id("matrix")).to_be_visible()
    expect(view.get_by_test_id("heads")).to_be_visible()
    notebook.write(3, "view.panels, view.bar = ['heads', 'lines', 'matrix'], True")
    notebook.run(3)
    expect(view.get_by_test_id("lines")).to_be_visible()
    notebook.write(3, STATE)


def test_python_moves_the_widget(notebook, view, expect):
    notebook.write(3, "view.layer, view.head, view.query, view.key = 1, 4, 2, 6")
    notebook.run(3)
    view.get_by_text("Matrix of layer 1 · head 4").wait_for()
    expect(view.get_by_test_id("readout")).to_have_text(re.compile("query 2 .* → key 6 "))
    assert read(view)[:2] == (2, 6)
    notebook.write(3, STATE)


UNEQUAL = """
unequal = AttentionView([maps(5, 11, 11), maps(2, 3, 3)])
unequal.head, unequal.query = 4, 10
unequal.layer = 1
unequal
"""


def test_what_is_pinned_in_a_longer_layer_does_not_break_a_shorter_one(notebook):
    view = notebook.output(4).get_by_test_id("attention-view")
    view.get_by_text("Matrix of layer 1 · head 1").wait_for()
    view.get_by_test_id("query-2").hover()
    view.get_by_text("query 2 “2”").first.wait_for()
    view.get_by_test_id("as-tables").locator("summary").click()
    view.get_by_text("Where each query looks most, layer 1 · head 1").wait_for()


def test_every_head_in_view_has_its_map(notebook, maps, soon):
    """The brightest pixel of a head's place is that of its largest weight."""
    view = reset(notebook.output(0))
    for layer, head in np.ndindex(3, 5):
        i, j = np.unravel_index(maps["first"][layer, head].argmax(), (7, 7))
        soon(lambda name=f"head-{layer}-{head}": view.evaluate(BRIGHTEST, name), [i, j])


BRIGHTEST = """(view, name) => {
  const sheet = view.querySelector('.av-heads-frame canvas').getBoundingClientRect();
  const box = view.querySelector(`[data-testid=${name}] .av-head-map`).getBoundingClientRect();
  const context = view.querySelector('.av-heads-frame canvas').getContext('2d');
  const ratio = window.devicePixelRatio;
  let best = [-1];
  for (let i = 0; i < 7; i++) for (let j = 0; j < 7; j++) {
    const x = box.left - sheet.left + ((j + 0.5) / 7) * box.width;
    const y = box.top - sheet.top + ((i + 0.5) / 7) * box.height;
    const [r, g, b] = context.getImageData(x * ratio, y * ratio, 1, 1).data;
    if (r + g > best[0]) best = [r + g, i, j];
  }
  return best.slice(1);
}"""


def test_from_the_keyboard_alone(notebook, view, expect):
    notebook.select(0)
    keys = view.page.keyboard
    stops = [
        "threshold",
        "more",
        "top-k",
        "hide-first",
        "sort",
        "heads",
        "queries",
        "keys",
        "matrix",
    ]
    for stop in [*stops, "as-tables"]:
        notebook.tab_into(view.get_by_test_id(stop))
        if stop == "threshold":
            keys.press("ArrowRight")
        if stop == "more":
            keys.press("Enter")
        if stop == "hide-first":
            keys.press("Escape")
            expect(view.get_by_test_id("more")).to_be_focused()
        if stop == "heads":
            for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Space"):
                keys.press(key)
        if stop == "queries":
            for key in ("Home", "ArrowDown", "ArrowDown", "Enter"):
                keys.press(key)
        if stop == "as-tables":
            keys.press("Space")
    expect(view.get_by_test_id("weights-table")).to_be_visible()
    expect(view.get_by_test_id("query-2")).to_have_attribute("aria-selected", "true")
    notebook.prints(3, "1 2 2 None [[1, 2]] 0.06 3")
    view.get_by_test_id("as-tables").locator("summary").click()


def test_what_is_folded_while_it_is_drawn_is_drawn_again(view):
    """As JupyterLab folds its panels for a moment when its theme changes."""
    view.evaluate(FOLD, "head-2-4")
    view.get_by_text("Matrix of layer 2 · head 4").wait_for()


# Ours is the later callback of the frame, and is before the frame's layout.
FOLD = """(view, head) => {
  view.querySelector(`[data-testid=${head}]`).click();
  view.parentElement.style.display = 'none';
  requestAnimationFrame(() => { view.parentElement.style.display = '' });
}"""


# --------------------------------------------------------------------------------- hostile, offline


def test_hostile_tokens_are_text(notebook, expect):
    harmless(reset(notebook.output(1)), expect)


def harmless(view: Any, expect: Any) -> None:
    for number, token in enumerate(HOSTILE):
        shown = view.get_by_test_id(f"key-{number}").locator(".av-token-text")
        expect(shown).to_have_js_property("textContent", visible(token))
    assert "taken" not in view.page.title()
    assert view.locator("script, img:not(.av-image-picture)").count() == 0
    assert view.evaluate("view => view.scrollWidth <= view.clientWidth"), "wider than its place"


def test_a_saved_file_lives_without_kernel_and_network(lab, maps, tabs, shows):
    page = tabs.open(offline=True)
    page.goto((lab.folder / "view.html").as_uri())
    view = page.get_by_test_id("attention-view")
    view.locator("xpath=self::*[@data-drawn]").wait_for()
    view.get_by_test_id("head-2-2").click()
    assert np.abs(walked(view, 7, 7) - maps["first"][2, 2]).max() < 0.006
    shows(view, maps["first"][2, 2, 5], hovered="query-5", most=3)
    page.close()
