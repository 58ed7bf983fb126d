"""QueryKeySpace in JupyterLab and as a file: all heads, one head, a token's sequence, its faith."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.query_key_space import QueryKeySpace
from tests.widgets.query_key_data import maps_of, points_of, tokens_of
points = points_of(tokens_of(), 3, 4)
maps = [maps_of(points), maps_of(points, method="pca"), maps_of(points, dimensions=3)]
space = QueryKeySpace(maps, kinds={(0, 0): "previous token"})
space.save_html("space.html", title="<Space>")
space
"""
ASK = """
import json
print(json.dumps({name: getattr(space, name) for name in
                  ("layer", "head", "view", "shown", "colour", "modulo", "order", "search",
                   "selected")}))
"""
BEGIN = """
with space.hold_sync():
    space.layer = space.head = space.shown = 0
    space.view, space.colour, space.modulo, space.order = "all", "side", 5, "layer"
    space.search, space.selected = "", []
"""


@pytest.fixture(scope="module")
def notebook(opened: Any) -> Any:
    notebook = opened("query_key_space.ipynb", [MAKE, ASK, BEGIN])
    notebook.run_all()
    notebook.output(0).locator("[data-drawn]").wait_for()
    return notebook


@pytest.fixture
def saved(notebook: Any, lab: Any, page: Any) -> Any:
    page.set_viewport_size({"width": 993, "height": 760})
    page.goto((lab.folder / "space.html").as_uri())
    found = page.get_by_test_id("query-key-space")
    found.and_(page.locator("[data-drawn]")).wait_for()
    return found


@pytest.fixture(params=["JupyterLab", "a saved file"])
def space(request: pytest.FixtureRequest, notebook: Any, soon: Any) -> Any:
    if request.param == "a saved file":
        return request.getfixturevalue("saved")
    notebook.run(2)
    found = notebook.output(0).get_by_test_id("query-key-space")
    soon(lambda: state(notebook)["view"], "all")
    found.get_by_test_id("head-0-0").wait_for()
    return found


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
    expect(space.get_by_test_id("key-4")).to_contain_text("0.504")
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


@pytest.mark.parametrize("wide", [700, 993, 1408])
@pytest.mark.parametrize("view", ["all", "one"])
def test_it_fits_a_cell(saved: Any, expect: Any, still: Any, wide: int, view: str) -> None:
    saved.page.set_viewport_size({"width": wide, "height": 760})
    if view == "one":
        saved.get_by_test_id("head-0-0").click()
        x, y = over_a_point(saved, still)
        saved.page.mouse.click(x, y)
        expect(saved.get_by_test_id("sentence")).to_be_visible()
    box = still(saved)
    assert box["width"] <= wide
    assert box["height"] <= (760 if wide >= 993 else 1300)
    assert saved.page.evaluate("document.documentElement.scrollWidth") <= wide
