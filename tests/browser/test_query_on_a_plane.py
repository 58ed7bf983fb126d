"""QueryOnAPlane in JupyterLab and as a file: what is moved there is what Python computes."""

import json
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.query_on_a_plane import QueryOnAPlane
plane = QueryOnAPlane()
plane.save_html("plane.html", title="<Plane>")
plane
"""
ASK = """
import json
print(json.dumps({"weights": plane.weights().tolist(), "query": plane.query, "masked": plane.masked,
                  "keys": plane.key_vectors, "output": plane.output().tolist(),
                  "scale": plane.scale, "said": plane.description()}))
"""


def begin(plane: Any) -> None:
    plane.get_by_test_id("preset").select_option("two equal keys")
    plane.get_by_test_id("preset").select_option("four keys")
    plane.get_by_test_id("summary").filter(has_text="key a 0.62").wait_for()


notebook = in_a_notebook("query_on_a_plane", MAKE, ASK)
plane = in_both("query-on-a-plane", "plane.html", begin)


def weights(plane: Any, count: int = 4) -> list[str]:
    return [plane.get_by_test_id(f"weight-{j}").inner_text() for j in range(count)]


def bars(plane: Any) -> list[float]:
    found = plane.get_by_test_id("weights").locator(".qp-fill")
    return [
        float(width.rstrip("%")) / 100
        for width in found.evaluate_all("all => all.map(x => x.style.width)")
    ]


def drag(plane: Any, name: str, right: float, up: float) -> None:
    """By so many units of the plane, with the mouse."""
    mouse, point = plane.page.mouse, plane.get_by_test_id(name)
    unit = plane.get_by_test_id("plane").bounding_box()["width"] / 6
    box = point.locator("circle.qp-reach").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 20, y + 20)
    mouse.move(x + unit * right, y - unit * up, steps=3)
    mouse.up()


def test_dragging_the_query_moves_the_bars(plane: Any, soon: Any, still: Any) -> None:
    still(plane)
    drag(plane, "query", -2.4, 1.1)  # from a towards c
    soon(lambda: float(weights(plane)[2]) > 0.8, True)
    shown = [float(text) for text in weights(plane)]
    assert bars(plane) == pytest.approx(shown, abs=0.006)
    assert plane.get_by_test_id("summary").inner_text().startswith("The query gives key c")
    assert plane.get_by_test_id("preset").input_value() == ""
    assert plane.locator(".qp-contour").count() >= 4


def test_keys_move_and_mask(plane: Any, soon: Any, expect: Any) -> None:
    query = plane.get_by_test_id("query")
    query.focus()
    plane.page.keyboard.press("Shift+ArrowLeft")
    soon(lambda: query.get_attribute("aria-valuetext"), "at 0.70, 0.90")
    key = plane.get_by_test_id("key-0")
    key.focus()
    plane.page.keyboard.press(" ")
    expect(plane.get_by_test_id("weight-0")).to_have_text("0.00")
    expect(plane.get_by_test_id("mask-0")).to_have_attribute("aria-pressed", "true")
    assert key.locator(".qp-hatch").get_attribute("d")
    assert sum(float(text) for text in weights(plane)) == pytest.approx(1, abs=0.02)
    assert "Key a is masked and gets 0." in plane.get_by_test_id("summary").inner_text()
    plane.get_by_test_id("live").filter(has_text="Key a is masked").wait_for(state="attached")
    plane.get_by_test_id("mask-0").click()
    expect(plane.get_by_test_id("mask-0")).to_have_attribute("aria-pressed", "false")


def test_a_click_masks_and_a_drag_does_not(plane: Any, expect: Any, soon: Any, still: Any) -> None:
    still(plane)
    drag(plane, "key-1", -0.5, 0.5)
    soon(
        lambda: (
            plane.get_by_test_id("key-1")
            .get_attribute("aria-valuetext")
            .startswith("at 1.70, −0.20")
        ),
        True,
    )
    expect(plane.get_by_test_id("mask-1")).to_have_attribute("aria-pressed", "false")
    plane.get_by_test_id("key-1").locator("circle.qp-reach").click()
    expect(plane.get_by_test_id("mask-1")).to_have_attribute("aria-pressed", "true")


def test_the_scale_hardens_and_softens(plane: Any, expect: Any) -> None:
    slider = plane.get_by_test_id("scale")
    before = float(weights(plane)[0])
    slider.focus()
    plane.page.keyboard.press("End")
    expect(plane.get_by_test_id("weight-0")).to_have_text("1.00")
    plane.page.keyboard.press("Home")
    expect(plane.get_by_test_id("weight-0")).to_have_text("0.29")
    plane.get_by_test_id("root").click()
    expect(plane.get_by_test_id("weight-0")).to_have_text(f"{before:.2f}")
    plane.get_by_test_id("root").click()
    expect(plane.get_by_test_id("weight-0")).to_have_text("0.71")


def test_the_map_of_winners_is_drawn(plane: Any, expect: Any) -> None:
    plane.get_by_test_id("preset").select_option("a large scale chooses")
    expect(plane.locator(".qp-region")).to_have_count(4)
    colours = plane.locator("canvas").evaluate(
        "map => new Set(new Uint32Array(map.getContext('2d')"
        ".getImageData(0, 0, map.width, map.height).data.buffer)).size"
    )
    assert colours > 5


def test_python_hears_of_it(notebook: Any, soon: Any) -> None:
    plane = notebook.output(0).get_by_test_id("query-on-a-plane")
    plane.get_by_test_id("preset").select_option("a long key wins")
    plane.get_by_test_id("mask-2").click()
    plane.get_by_test_id("summary").filter(has_text="Key c is masked").wait_for()
    notebook.page.wait_for_timeout(1000)
    notebook.run(1)
    said = json.loads(notebook.output(1).inner_text())
    assert said["masked"] == [2]
    assert said["said"] == plane.get_by_test_id("summary").inner_text()
    assert [f"{weight:.2f}" for weight in said["weights"]] == weights(plane, 3)
