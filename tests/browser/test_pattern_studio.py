"""PatternStudio in JupyterLab and as a file, against the masks and weights that Python holds."""

import json
from typing import Any

import numpy as np
import pytest
from attnlab_widgets.pattern_studio import presets

from attnlab.core.patterns import read
from tests.browser.widget_pages import FRAME, in_a_notebook, slide

pytestmark = pytest.mark.browser

MAKE = """
import numpy as np
from attnlab_widgets.pattern_studio import PatternStudio
studio = PatternStudio("local(2) | global_([0])", n=17)
studio.save_html("studio.html", title="<Studio>")
studio
"""
GIVEN = """
given = PatternStudio("causal()", n=11, scores=np.random.default_rng(3).normal(size=(13, 13)))
given
"""
ASK = """
import json
print(json.dumps({
    "expression": studio.expression, "n": studio.n, "code": studio.code, "row": studio.row,
    "scores": studio.scores,
    "mask": studio.mask.int().tolist(), "weights": studio.weights.tolist(),
    "layers": studio.pattern.receptive_field(studio.n, 64, residual=studio.residual).layers,
}))
"""
WEIGHTS = "print(json.dumps(given.weights.tolist()))"

notebook = in_a_notebook("pattern_studio", MAKE, GIVEN, ASK, WEIGHTS, shown=2)


@pytest.fixture
def studio(notebook: Any) -> Any:
    """The first widget, as it was made."""
    studio = notebook.output(0).get_by_test_id("pattern-studio")
    studio.evaluate(FRAME)
    if studio.get_by_test_id("wipe").is_enabled():
        studio.get_by_test_id("wipe").click()
    slide(studio, "n", 17)
    studio.get_by_test_id("expression").fill("local(2) | global_([0])")
    if not studio.get_by_test_id("block").is_visible():
        studio.get_by_test_id("more").click()
    studio.get_by_test_id("block").select_option("8")
    studio.get_by_test_id("block").press("Escape")
    slide(studio, "row", 8)
    studio.page.mouse.move(0, 0)
    says(studio, "pairs", count("local(2) | global_([0])", 17))
    return studio


def says(studio: Any, testid: str, words: str) -> None:
    studio.get_by_test_id(testid).filter(has_text=words).wait_for()


def count(expression: str, n: int) -> str:
    return f"{read(expression).count(n):,} of {n * n:,}"


@pytest.fixture
def asked(soon: Any, notebook: Any) -> Any:
    def asked(**expected: Any) -> dict[str, Any]:
        """What Python holds, once it is what is expected: the page waits for the kernel."""
        state: dict[str, Any] = {}

        def answer() -> dict[str, Any]:
            state.update(json.loads(notebook.run(2)))
            return {name: state[name] for name in expected}

        soon(answer, expected)
        return state

    return asked


@pytest.fixture
def tells(soon: Any) -> Any:
    def tells(studio: Any, wanted: Any) -> None:
        """The tables come to show this mask; each look at it is one look, at one drawing."""
        tables = studio.get_by_test_id("as-tables")
        if tables.get_attribute("open") is None:
            tables.locator("summary").click()
        soon(lambda: sources_of(tables.evaluate(CELLS)), np.asarray(wanted, int).tolist())
        tables.locator("summary").click()

    return tells


CELLS = """tables => [...tables.querySelectorAll('[data-testid=mask-table] tbody tr')].map(
  row => [...row.cells].map(cell => cell.textContent))"""


def sources_of(rows: list[list[str]]) -> list[list[int]]:
    """The mask that the rows of the tables show: query, how many keys, which, …"""
    mask = np.zeros((len(rows), len(rows)), int)
    for i, (_, seen, which, *_) in enumerate(rows):
        for run in which.split(", ") if seen != "0" else []:
            first, _, last = run.partition("–")
            mask[i, int(first) : int(last or first) + 1] = 1
        assert mask[i].sum() == int(seen)
    return mask.tolist()


@pytest.fixture
def cell(still: Any) -> Any:
    def cell(studio: Any, i: int, j: int) -> tuple[float, float]:
        """The middle of a cell, on the page."""
        box = still(studio.get_by_test_id("mask").locator("canvas"))
        n = int(studio.get_by_test_id("n").input_value())
        side = (box["width"] - 44 - 4) / n
        return box["x"] + 44 + (j + 0.5) * side, box["y"] + 24 + (i + 0.5) * side

    return cell


# ------------------------------------------------------------------------------------- composing


def test_the_page_says_what_python_holds(studio, asked, tells):
    answer = asked(expression="local(2) | global_([0])", n=17)
    tells(studio, answer["mask"])
    says(studio, "pairs", count(answer["expression"], 17))
    says(studio, "flops", f"{4 * 64 * np.sum(answer['mask']):,} of {4 * 64 * 17**2:,}")
    says(studio, "layers", f"everything is connected after {answer['layers']} layers")
    blocks = read(answer["expression"]).dense(17).numpy()
    full = sum(blocks[i : i + 8, j : j + 8].all() for i in (0, 8, 16) for j in (0, 8, 16))
    says(studio, "blocks", f"{full} full")


def test_a_slider_and_another_primitive_change_the_numbers(studio, asked, tells, expect):
    slide(studio, "n", 29)
    says(studio, "pairs", count("local(2) | global_([0])", 29))
    studio.get_by_test_id("kind-0").select_option("strided")
    says(studio, "pairs", count("strided(4) | global_([0])", 29))
    studio.get_by_test_id("stride-0").fill("7")
    says(studio, "pairs", count("strided(7) | global_([0])", 29))
    studio.get_by_test_id("positions-1").fill("0, 5, -1")
    studio.get_by_test_id("positions-1").press("Enter")
    studio.get_by_test_id("causal").check()
    studio.get_by_test_id("not-0").check()
    written = "(~strided(7) | global_([0, 5, -1])).causal()"
    says(studio, "pairs", count(written, 29))
    expect(studio.get_by_test_id("expression")).to_have_value(written)
    answer = asked(expression=written, n=29)
    tells(studio, answer["mask"])


def test_parts_are_added_joined_and_removed(studio, expect):
    studio.get_by_test_id("add").click()
    studio.get_by_test_id("kind-2").select_option("random")
    studio.get_by_test_id("join-2").select_option("&")
    studio.get_by_test_id("seed-2").fill("5")
    written = "(local(2) | global_([0])) & random(3, seed=5)"
    says(studio, "pairs", count(written, 17))
    expect(studio.get_by_test_id("expression")).to_have_value(written)
    studio.get_by_test_id("remove-0").click()
    says(studio, "pairs", count("global_([0]) & random(3, seed=5)", 17))
    studio.get_by_test_id("remove-1").click()
    says(studio, "pairs", count("global_([0])", 17))
    expect(studio.get_by_test_id("remove-0")).to_be_disabled()
    studio.get_by_test_id("blocks-0").fill("4")
    says(studio, "pairs", count("global_([0]).blocks(4)", 17))


def test_an_expression_is_typed_and_errors_are_sentences(studio, asked, expect):
    field = studio.get_by_test_id("expression")
    field.fill("(local(1) | strided(5)).blocks(2)")
    says(studio, "pairs", count("(local(1) | strided(5)).blocks(2)", 17))
    says(studio, "no-parts", "more than a list of parts")
    field.fill("lokal(3)")
    says(studio, "error", "There is no pattern “lokal”; did you mean “local”?")
    says(studio, "error", "still the last one that could be drawn")
    says(studio, "pairs", count("(local(1) | strided(5)).blocks(2)", 17))
    expect(field).to_have_attribute("aria-invalid", "true")
    asked(expression="(local(1) | strided(5)).blocks(2)")
    field.fill("glob")
    says(studio, "error", "There is no pattern “glob”; did you mean “global_”?")
    field.fill("local(-1)")
    says(studio, "error", "Local: radius should be at least 0, got -1.")
    field.fill("axial((3, 5), 0)")
    says(studio, "error", "A grid of 3 × 5 has 15 positions, but the sequence has 17.")
    slide(studio, "n", 15)
    studio.get_by_test_id("error").wait_for(state="hidden")
    says(studio, "pairs", count("axial((3, 5), 0)", 15))
    field.fill("strided(40)")
    says(studio, "remarks", "A stride of 40 is longer than the sequence of 15")
    field.fill("causal() & ~local(1)")
    says(studio, "remarks", "Rows 0–1 attend to nothing: their outputs are zero.")
    slide(studio, "row", 1)
    says(studio, "row-said", "Row 1 attends to nothing: its output is zero.")


def test_a_known_pattern_is_chosen_from_the_menu(studio, asked, tells, expect):
    menu = studio.get_by_test_id("preset")
    expect(menu).to_have_value("")
    for title, code in presets():
        menu.select_option(label=title)
        says(studio, "pairs", count(code, 17))
        expect(studio.get_by_test_id("expression")).to_have_value(code)
    asked(expression=presets()[-1][1])
    tells(studio, read(presets()[-1][1]).dense(17))
    studio.get_by_test_id("n").focus()
    studio.get_by_test_id("expression").fill("local(1)")
    expect(menu).to_have_value("")


def test_the_receptive_field_moves_with_its_slider(studio):
    studio.get_by_test_id("expression").fill("local(2)")
    says(studio, "layers", "everything is connected after 8 layers")
    pattern = read("local(2)").receptive_field(17, 8)
    for layer in (1, 3, 8):
        slide(studio, "layer", layer)
        says(studio, "receptive-field-text", f"{int(pattern.after[layer - 1].sum())} of 289 pairs")
    says(studio, "receptive-field-text", "Output 8 knows 0–16.")
    studio.get_by_test_id("expression").fill("~local(0) & local(1)")
    studio.get_by_test_id("residual").uncheck()
    says(studio, "layers", "without ever settling")
    studio.get_by_test_id("residual").check()
    says(studio, "layers", "everything is connected after 16 layers")


def test_the_softmax_row_is_pythons(notebook, studio, asked, expect):
    for kind in ("flat", "equal", "sharp"):
        studio.get_by_test_id("scores").select_option(kind)
        answer = asked(scores=kind)
        row = np.array(answer["weights"])[8]
        best = int(row.argmax())
        says(studio, "row-said", "Row 8 attends to 6 of 17 keys: 0, 6–10.")
        says(studio, "row-said", f"{row[best]:.3f}, on key {best}.")
    other = notebook.output(1).get_by_test_id("pattern-studio")
    slide(other, "row", 10)
    row = np.array(json.loads(notebook.run(3)))[10]
    says(other, "row-said", f"{row.max():.3g}")
    expect(other.get_by_test_id("scores")).to_have_value("given")
    expect(other.get_by_test_id("n")).to_have_attribute("max", "13")


# -------------------------------------------------------------------------------------- painting


def test_painting_with_the_mouse(studio, asked, tells, cell, expect):
    mouse = studio.page.mouse
    mouse.move(*cell(studio, 5, 12))
    says(studio, "readout", "query 5 → key 12: may not attend")
    mouse.down()
    mouse.move(*cell(studio, 9, 12), steps=2)
    mouse.up()
    wanted = read("local(2) | global_([0])").dense(17).int().numpy()
    wanted[5:10, 12] = 1
    tells(studio, wanted)
    answer = asked(mask=wanted.tolist(), row=9)
    assert read(answer["code"]).dense(17).int().tolist() == wanted.tolist()
    expect(studio.get_by_test_id("painted-code")).to_have_text(answer["code"])
    studio.get_by_test_id("undo").click()
    says(studio, "pairs", count("local(2) | global_([0])", 17))
    studio.get_by_test_id("redo").click()
    says(studio, "pairs", f"{wanted.sum()} of 289")
    mouse.click(*cell(studio, 5, 12))
    mouse.click(*cell(studio, 1, 1))
    mouse.move(*cell(studio, 16, 3))  # the pointer goes on speaking; then a key does
    says(studio, "readout", "query 16 → key 3: may not attend")
    studio.page.keyboard.press("ArrowRight")
    says(studio, "readout", "query 1 → key 2: may attend")
    wanted[5, 12] = wanted[1, 1] = 0
    tells(studio, wanted)
    asked(mask=wanted.tolist())
    studio.get_by_test_id("wipe").click()
    says(studio, "pairs", count("local(2) | global_([0])", 17))
    expect(studio.get_by_test_id("wipe")).to_be_disabled()


def test_painting_with_the_keyboard(notebook, studio, asked, tells):
    keys = studio.page.keyboard
    slide(studio, "row", 8)
    studio.get_by_test_id("expression").focus()
    notebook.tab_into(studio.get_by_test_id("mask"), most=24)
    for key in ("Home", "End", "ArrowLeft", "ArrowLeft"):
        keys.press(key)
    says(studio, "readout", "key 14: may not attend")
    keys.press("Space")
    says(studio, "readout", "key 14: may attend")
    says(studio, "live", "key 14: may attend · weight")
    keys.press("Shift+ArrowDown")
    keys.press("Shift+ArrowRight")
    wanted = read("local(2) | global_([0])").dense(17).int().numpy()
    row = 9
    asked(row=row)
    wanted[[row - 1, row, row], [14, 14, 15]] = 1
    tells(studio, wanted)
    asked(mask=wanted.tolist())
    studio.get_by_test_id("mask").focus()
    keys.press("Control+z")
    wanted[row, 15] = 0
    tells(studio, wanted)
    studio.get_by_test_id("mask").focus()
    keys.press("Control+y")
    wanted[row, 15] = 1
    tells(studio, wanted)


def test_what_has_the_focus_keeps_it_when_an_arrow_key_changes_it(studio, asked, expect):
    studio.get_by_test_id("radius-0").focus()
    studio.page.keyboard.press("ArrowUp")
    says(studio, "pairs", count("local(3) | global_([0])", 17))
    expect(studio.get_by_test_id("radius-0")).to_be_focused()
    asked(expression="local(3) | global_([0])")


def test_python_moves_the_studio_and_no_other(notebook, studio, expect):
    other = notebook.output(1).get_by_test_id("pattern-studio")
    before = other.get_by_test_id("summary").inner_text()
    code = 'studio.show("local_2d((3, 5), 1)", n=15)\nstudio.paint(2, 14)'
    notebook.write(3, code)
    notebook.run(3)
    says(studio, "pairs", f"{read('local_2d((3, 5), 1)').count(15) + 1} of 225")
    expect(studio.get_by_test_id("expression")).to_have_value("local_2d((3, 5), 1)")
    expect(studio.get_by_test_id("shape-0")).to_have_value("3 × 5")
    assert other.get_by_test_id("summary").inner_text() == before
    notebook.write(3, WEIGHTS)


def test_the_code_is_copied_painted_cells_and_all(studio, asked, cell):
    studio.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    studio.page.mouse.click(*cell(studio, 3, 9))
    says(studio, "painted-code", 'places([3], of="row") & places([9], of="column")')
    button = studio.get_by_test_id("copy")
    button.evaluate(HEARD)
    button.click()
    says(studio, "live", "the code is copied")
    assert studio.page.evaluate("heard").count("Copied") == 1
    copied = studio.page.evaluate("navigator.clipboard.readText()")
    asked(code=copied)


# Its word stays for a second, which a busy machine may spend elsewhere.
HEARD = """button => {
  window.heard = [];
  new MutationObserver(() => heard.push(button.textContent)).observe(button, {childList: true});
}"""


# ------------------------------------------------------------------------------------ light, files


def test_dark_pages_have_dark_studios(notebook, studio, expect, soon):
    expect(studio).to_have_attribute("data-theme", "light")
    light = soon(lambda: filled(studio), lambda look: sum(look[1]) > 700)
    notebook.screenshot("pattern-studio-light")
    with notebook.dark():
        notebook.page.locator("[data-theme=dark]").first.wait_for()
        dark = soon(lambda: filled(studio), lambda look: sum(look[1]) < 200)
        notebook.screenshot("pattern-studio-dark")
    notebook.page.locator("[data-theme=light]").first.wait_for()
    for cell_, ground in (light, dark):
        assert contrast(cell_, ground) > 3


def filled(studio: Any) -> list[list[int]]:
    """The colours of a cell that may be attended to, and of one that may not."""
    canvas = studio.get_by_test_id("mask").locator("canvas")
    return canvas.evaluate(
        """canvas => [[8, 9], [8, 13]].map(([i, j]) => {
          const ratio = canvas.width / canvas.clientWidth;
          const side = (canvas.clientWidth - 48) / 17;
          const at = [44 + (j + 0.3) * side, 24 + (i + 0.3) * side].map((x) => x * ratio);
          return [...canvas.getContext('2d').getImageData(...at, 1, 1).data].slice(0, 3);
        })"""
    )


def contrast(one: list[int], other: list[int]) -> float:
    from attnlab.figures import theme

    return theme.contrast(*("#" + bytes(colour).hex() for colour in (one, other)))


def test_a_saved_file_lives_without_kernel_and_network(notebook, lab, tabs, tells, cell):
    page = tabs.open(offline=True)
    page.goto((lab.folder / "studio.html").as_uri())
    assert page.title() == "<Studio>"
    studio = page.get_by_test_id("pattern-studio")
    studio.locator("xpath=self::*[@data-drawn]").wait_for()
    slide(studio, "n", 31)
    studio.get_by_test_id("kind-1").select_option("random")
    studio.get_by_test_id("keys-1").fill("5")
    expression = "local(2) | random(5, seed=0)"
    says(studio, "pairs", count(expression, 31))
    tells(studio, read(expression).dense(31))
    page.mouse.click(*cell(studio, 3, 29))
    says(studio, "readout", "query 3 → key 29")
    says(studio, "painted-code", "places([3]")
    page.keyboard.press("Control+z")
    says(studio, "pairs", count(expression, 31))
    assert studio.evaluate("view => view.scrollWidth <= view.clientWidth"), "wider than its place"
    page.screenshot(path=notebook.shots / "pattern-studio-saved.png", full_page=True)
    page.close()


def test_a_narrow_page_has_room(notebook, lab, page):
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto((lab.folder / "studio.html").as_uri())
    studio = page.get_by_test_id("pattern-studio")
    studio.locator("xpath=self::*[@data-drawn]").wait_for()
    slide(studio, "n", 128)
    says(studio, "pairs", count("local(2) | global_([0])", 128))
    assert page.evaluate("document.documentElement.scrollWidth <= 400")
    page.screenshot(path=notebook.shots / "pattern-studio-narrow.png", full_page=True)


def test_pointing_and_painting_stay_where_they_are_after_python_draws(studio, asked, cell):
    """A stroke that is under way is not lost when something else is drawn."""
    mouse = studio.page.mouse
    mouse.move(*cell(studio, 4, 10))
    mouse.down()
    slide(studio, "layer", 1)
    mouse.move(*cell(studio, 4, 13), steps=3)
    mouse.up()
    wanted = read("local(2) | global_([0])").dense(17).int().numpy()
    wanted[4, 10:14] = 1
    asked(mask=wanted.tolist())
