"""QueryKeySpace in JupyterLab and as a file: all heads, one head, a token's sequence, its faith."""

import json
import re
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook

pytestmark = pytest.mark.browser

MAKE = """
import numpy as np
from attnlab_widgets.query_key_space import QueryKeySpace
from attnlab_widgets.query_key_space.example import maps_of, points_of, tokens_of
points = points_of(tokens_of(), 3, 4)
maps = [maps_of(points), maps_of(points, method="pca"), maps_of(points, dimensions=3)]
space = QueryKeySpace(
    maps,
    kinds={(0, 0): "previous token"},
    place=lambda text: maps_of(points_of(tokens_of(1, len(text.split())), 3, 4)),
)
space.save_html("space.html", title="<Space>")
steps = {step: points_of(tokens_of(), 1, 2, seed=step) for step in (0, 9)}
film = {step: maps_of(one, blur=1 / (1 + step)) for step, one in steps.items()}
QueryKeySpace(film).save_html("film.html")
squares = np.zeros((12, 8, 8), np.float32)
squares[:, 2:6, 2:6] = 1
tokens = tokens_of(12, 17, labels=tuple("ab" * 102), images=squares, grid=(4, 4))
QueryKeySpace(maps_of(points_of(tokens, 1, 1))).save_html("image.html")
space
"""
ASK = """
import json
print(json.dumps({name: getattr(space, name) for name in
                  ("layer", "head", "view", "shown", "colour", "search", "selected")}))
"""
BEGIN = """
with space.hold_sync():
    space.layer = space.head = space.shown = 0
    space.view, space.colour, space.modulo, space.order = "all", "side", 5, "layer"
    space.search, space.selected, space.sentence = "", [], ""
"""


NO_WEBGL = """
const get = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind === 'webgl' ? null : get.call(this, kind, ...more);
};
"""
PAINTED = """() => {
  const points = document.querySelector('.qk-stage > canvas');
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [points.width, points.height];
  const pen = copy.getContext('2d');
  pen.drawImage(points, 0, 0);
  const {data} = pen.getImageData(0, 0, copy.width, copy.height);
  return data.filter((x, i) => i % 4 === 3 && x).length;
}"""
LEAVE = "() => document.querySelector('main').style.marginTop = '9000px'"


notebook = in_a_notebook("query_key_space", MAKE, ASK, BEGIN)


@pytest.fixture(params=["JupyterLab", "a saved file"])
def space(request: pytest.FixtureRequest, notebook: Any, soon: Any) -> Any:
    if request.param == "a saved file":
        return request.getfixturevalue("saved")
    notebook.run(2)
    found = notebook.output(0).get_by_test_id("query-key-space")
    soon(lambda: state(notebook)["view"], "all")
    found.get_by_test_id("head-0-0").wait_for()
    return found


@pytest.fixture
def opened_file(notebook: Any, lab: Any, page: Any) -> Any:
    """Opens another saved file than that of the space."""

    def open_one(name: str) -> Any:
        page.set_viewport_size({"width": 993, "height": 760})
        page.goto((lab.folder / name).as_uri())
        found = page.get_by_test_id("query-key-space")
        found.and_(page.locator("[data-drawn]")).wait_for()
        return found

    return open_one


@pytest.fixture
def saved(opened_file: Any) -> Any:
    return opened_file("space.html")


def state(notebook: Any) -> dict[str, Any]:
    return json.loads(notebook.run(1))  # type: ignore[no-any-return]


def over_a_point(space: Any, still: Any) -> tuple[float, float]:
    """Move the mouse over the map until a token is told; where that was."""
    box = still(space.get_by_test_id("stage"))
    mouse, tip = space.page.mouse, space.get_by_test_id("tip")
    for down in range(20, int(box["height"]) - 20, 24):
        for across in range(20, int(box["width"]) - 20, 12):
            mouse.move(box["x"] + across, box["y"] + down)
            space.page.evaluate("() => new Promise(requestAnimationFrame)")
            if tip.is_visible():
                return box["x"] + across, box["y"] + down
    pytest.fail("no point answered the mouse")


def test_all_heads_then_one_and_back(space: Any, expect: Any) -> None:
    expect(space.get_by_test_id("heads").get_by_role("option")).to_have_count(12)
    expect(space.get_by_test_id("stage")).to_have_attribute("data-renderer", "webgl")
    expect(space.get_by_test_id("faithfulness")).to_contain_text("62 % are among its nearest keys")
    space.get_by_test_id("head-1-2").click()
    expect(space.get_by_test_id("title")).to_have_text("Layer 1 · head 2")
    expect(space.get_by_test_id("heads")).to_be_hidden()
    space.get_by_test_id("stage").press("ArrowLeft")
    expect(space.get_by_test_id("title")).to_have_text("Layer 1 · head 1")
    space.get_by_test_id("stage").press("ArrowUp")
    expect(space.get_by_test_id("title")).to_have_text("Layer 0 · head 1")
    space.get_by_test_id("stage").press("ArrowUp")
    expect(space.get_by_test_id("live")).to_contain_text("no head on this side")
    space.get_by_test_id("stage").press("Escape")
    expect(space.get_by_test_id("heads")).to_be_visible()


def test_a_token_tells_its_sentence_and_shows_its_sequence(
    space: Any, expect: Any, still: Any
) -> None:
    space.get_by_test_id("head-0-0").click()
    expect(space.get_by_test_id("heads")).to_be_hidden()
    x, y = over_a_point(space, still)
    tip = space.get_by_test_id("tip")
    expect(tip).to_contain_text("of sequence")
    expect(tip.locator("strong")).to_have_count(1)
    space.page.mouse.click(x, y)
    expect(space.get_by_test_id("sentence")).to_be_visible()
    expect(space.get_by_test_id("near")).to_contain_text("no attention between")
    chosen = space.get_by_test_id("sentence").locator('[aria-selected="true"]')
    expect(chosen).to_have_count(1)
    space.get_by_test_id("query-5").click()
    expect(space.get_by_test_id("query-5")).to_have_attribute("aria-selected", "true")
    expect(space.get_by_test_id("key-4")).to_contain_text("0.50")
    strongest = space.get_by_test_id("strongest")
    expect(strongest).to_have_text(re.compile(r"^“.+” at 5 attends most to .+ at 4 \(0\.50\), "))
    space.get_by_test_id("stage").press(".")
    expect(strongest).to_contain_text("at 6 attends most to")
    space.get_by_test_id("stage").press("s")
    expect(strongest).to_contain_text("at 6 is a strongest key of")
    space.get_by_test_id("stage").press("Escape")
    expect(space.get_by_test_id("sentence")).to_be_hidden()
    expect(space.get_by_test_id("by-position")).to_be_visible()


def test_search_counts(space: Any, expect: Any) -> None:
    space.get_by_test_id("search").fill("saw")
    expect(space.get_by_test_id("search-count")).to_have_text("12 queries, 12 keys in each head")
    space.get_by_test_id("search").fill("qu*")
    expect(space.get_by_test_id("search-count")).to_have_text("nowhere")


def test_the_wheel_opens_a_head_and_leaves_it(space: Any, expect: Any, still: Any) -> None:
    box = still(space.get_by_test_id("head-1-1"))
    space.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for _ in range(12):
        space.page.mouse.wheel(0, -240)
    expect(space.get_by_test_id("heads")).to_be_hidden()
    space.page.mouse.wheel(0, 3000)
    space.page.mouse.wheel(0, 3000)
    expect(space.get_by_test_id("heads")).to_be_visible()


def test_python_is_told_and_tells(notebook: Any, soon: Any, expect: Any) -> None:
    notebook.run(2)
    found = notebook.output(0).get_by_test_id("query-key-space")
    found.get_by_test_id("head-2-3").click()
    found.get_by_test_id("colour").select_option("modulo")
    found.get_by_test_id("map").select_option("1")
    wanted = {"layer": 2, "head": 3, "view": "one", "colour": "modulo", "shown": 1}
    soon(lambda: {name: state(notebook)[name] for name in wanted}, wanted)
    notebook.run(2)
    expect(found.get_by_test_id("heads")).to_be_visible()


def around_the_middle(space: Any, still: Any) -> None:
    """Press, go around the middle of the map and let go."""
    box = still(space.get_by_test_id("stage"))
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse = space.page.mouse
    mouse.move(x - 180, y - 150)
    mouse.down()
    for across, down in ((180, -150), (180, 150), (-180, 150), (-180, -140)):
        mouse.move(x + across, y + down, steps=4)
    mouse.up()


def test_what_is_drawn_around_tells_what_it_shares(space: Any, expect: Any, still: Any) -> None:
    space.get_by_test_id("head-0-0").click()
    space.get_by_test_id("lasso").click()
    around_the_middle(space, still)
    expect(space.get_by_test_id("cluster")).to_contain_text("queries and")
    expect(space.get_by_test_id("shared")).to_contain_text("position")
    expect(space.get_by_test_id("by-distance")).to_have_attribute(
        "aria-label", re.compile(r"most at -1: 0\.\d")
    )
    space.get_by_test_id("forget").click()
    expect(space.get_by_test_id("cluster")).to_be_hidden()
    space.get_by_test_id("lasso").click()


def test_three_dimensions_turn_under_the_mouse(saved: Any, expect: Any, still: Any) -> None:
    saved.get_by_test_id("head-0-0").click()
    saved.get_by_test_id("map").select_option("2")
    expect(saved.locator("[data-drawn]").or_(saved)).to_be_visible()
    box = still(saved.get_by_test_id("stage"))
    mouse = saved.page.mouse
    saved.page.wait_for_timeout(1000)
    before = saved.get_by_test_id("stage").screenshot()
    mouse.move(box["x"] + 200, box["y"] + 200)
    mouse.down()
    mouse.move(box["x"] + 320, box["y"] + 260, steps=5)
    mouse.up()
    mouse.move(box["x"] - 4, box["y"] - 4)
    saved.page.wait_for_timeout(600)
    assert saved.get_by_test_id("stage").screenshot() != before


def test_a_film_moves_from_step_to_step(opened_file: Any, expect: Any) -> None:
    film = opened_file("film.html")
    step = film.get_by_test_id("step")
    expect(step).to_have_value("1")
    entropy = film.get_by_test_id("statistics").inner_text()
    step.fill("0")
    expect(film.get_by_role("group", name="Film")).to_contain_text("Training step")
    expect(film.get_by_test_id("statistics")).not_to_have_text(entropy, use_inner_text=True)
    expect(film.get_by_test_id("map")).to_be_hidden()
    film.get_by_test_id("play").click()
    expect(step).to_have_value("1")
    expect(film.get_by_test_id("play")).to_have_text("Play")


def test_a_sentence_is_typed_and_placed(notebook: Any, expect: Any) -> None:
    notebook.run(2)
    space = notebook.output(0).get_by_test_id("query-key-space")
    space.get_by_test_id("head-0-0").click()
    space.get_by_test_id("sentence-text").fill("three little words")
    space.get_by_test_id("sentence-text").press("Enter")
    expect(space.get_by_test_id("placed")).to_have_text("3 tokens on the map")
    expect(space.get_by_test_id("queries").get_by_role("option")).to_have_count(3)
    space.get_by_test_id("query-1").click()
    expect(space.get_by_test_id("key-0")).to_contain_text("0.")
    space.get_by_test_id("sentence-text").fill("w " * 600)
    space.get_by_test_id("place").click()
    expect(space.get_by_test_id("placed")).to_contain_text("Not placed: the text has 600 tokens")
    space.get_by_test_id("clear").click()
    expect(space.get_by_test_id("placed")).to_have_text("")
    expect(space.get_by_test_id("sentence")).to_be_hidden()


def test_a_saved_page_says_why_nothing_can_be_typed(saved: Any, expect: Any) -> None:
    expect(saved.get_by_test_id("sentence-text")).to_be_hidden()
    expect(saved.get_by_test_id("placed")).to_contain_text("a saved page has no kernel")


def test_an_image_shows_where_the_keys_are(opened_file: Any, expect: Any, still: Any) -> None:
    space = opened_file("image.html")
    space.get_by_test_id("head-0-0").click()
    x, y = over_a_point(space, still)
    space.page.mouse.click(x, y)
    image = space.get_by_test_id("image")
    expect(image).to_be_visible()
    image.click(position={"x": 110, "y": 40})
    said = space.get_by_test_id("image-said")
    expect(said).to_contain_text(re.compile(r"the (query|key) row 0, column 1 (attends|is among)"))
    image.press("ArrowDown")
    expect(said).to_contain_text("row 1, column 1")
    space.get_by_test_id("colour").select_option("class")
    expect(space.get_by_test_id("legend")).to_contain_text("b")


def test_without_webgl_a_canvas_draws(tabs: Any, notebook: Any, lab: Any, expect: Any) -> None:
    page = tabs.open(offline=True)
    page.add_init_script(NO_WEBGL)
    page.goto((lab.folder / "space.html").as_uri())
    space = page.get_by_test_id("query-key-space")
    expect(space.get_by_test_id("stage")).to_have_attribute("data-renderer", "2d")
    expect(space.get_by_test_id("stage").and_(page.locator("[data-renderer]"))).to_be_visible()
    assert page.evaluate(PAINTED) > 500
    page.close()


def test_webgl_draws_and_gives_its_context_back(saved: Any) -> None:
    page = saved.page
    saved.locator("xpath=self::*[@data-whole='true']").wait_for()
    assert page.evaluate(PAINTED) > 500
    page.evaluate(LEAVE)
    page.wait_for_function("() => !document.querySelector('.qk-stage > canvas + canvas')")
    page.evaluate("() => document.querySelector('main').style.marginTop = 0")
    page.wait_for_function("() => document.querySelector('.qk-stage > canvas + canvas')")
    page.wait_for_timeout(500)
    assert page.evaluate(PAINTED) > 500


def test_tables_and_pictures_say_the_same(saved: Any, expect: Any, tmp_path: Any) -> None:
    saved.get_by_text("As tables").click()
    expect(saved.get_by_test_id("heads-table").locator("tbody tr")).to_have_count(12)
    expect(saved.get_by_test_id("heads-table")).to_contain_text("previous token")
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<svg")):
        with saved.page.expect_download() as download:
            saved.get_by_test_id(f"save-{kind}").click()
        download.value.save_as(tmp_path / kind)
        assert (tmp_path / kind).read_bytes().startswith(start)
    assert "62 % are among" in (tmp_path / "svg").read_text("utf-8")


@pytest.mark.parametrize("wide", [700, 993, 1408])
def test_one_head_and_its_sentence_fit_a_cell(
    saved: Any, expect: Any, still: Any, wide: int
) -> None:
    saved.page.set_viewport_size({"width": wide, "height": 760})
    saved.get_by_test_id("head-0-0").click()
    x, y = over_a_point(saved, still)
    saved.page.mouse.click(x, y)
    expect(saved.get_by_test_id("sentence")).to_be_visible()
    box = still(saved)
    assert box["width"] <= wide
    assert box["height"] <= (760 if wide >= 993 else 1300)
    assert saved.page.evaluate("document.documentElement.scrollWidth") <= wide
