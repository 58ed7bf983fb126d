"""KernelLab in JupyterLab and as a file: maps that follow the slider, and what was tried."""

from typing import Any

import pytest

from tests.browser.widget_pages import FRAME, in_a_notebook, in_both, pixels, said, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.kernel_lab import KernelLab
lab = KernelLab(length=128)
lab.save_html("kernels.html", title="<Kernels>")
lab
"""
ASK = """
import json
print(json.dumps({"said": lab.description(), "features": lab.features, "head": lab.head,
                  "tried": [lab.said(one) for one in lab.tried],
                  "timed": bool(lab.wait() and lab.measured)}))
"""
FIRST = "gentle head: random: positive, 64 features, orthogonal, seed 0"
RELEASE = "input => input.dispatchEvent(new Event('change', {bubbles: true}))"


def begin(kernels: Any) -> None:
    """The gentle head with 64 positive features, as at first; what was tried stays."""
    more = kernels.get_by_test_id("more")
    kernels.get_by_test_id("feature").select_option("positive")
    kernels.get_by_test_id("head").select_option("gentle head")
    slide(kernels, "features", 4)
    slide(kernels, "temperature", 3)
    more.click()
    kernels.get_by_test_id("seed").fill("0")
    kernels.get_by_test_id("seed").press("Tab")
    more.click()
    kernels.get_by_test_id("summary").filter(
        has_text="64 features, orthogonal, seed 0: "
    ).wait_for()


notebook = in_a_notebook("kernel_lab", MAKE, ASK)
kernels = in_both("kernel-lab", "kernels.html", begin)


def tried(kernels: Any) -> list[str]:
    return list(kernels.locator(".kl-said").all_inner_texts())


def map_of(kernels: Any, which: int) -> str:
    return pixels(kernels.locator(".kl-map canvas").nth(which))


def test_the_maps_follow_the_slider_and_only_its_end_was_tried(kernels: Any, soon: Any) -> None:
    before = tried(kernels)
    shown = {map_of(kernels, 1)}
    exact = map_of(kernels, 0)
    for step in range(5, 11):
        slide(kernels, "features", step)
        kernels.page.evaluate(FRAME)
        shown.add(map_of(kernels, 1))
    assert len(shown) == 7, "the map of the features is another one at each step"
    assert map_of(kernels, 0) == exact
    assert tried(kernels) == before
    kernels.get_by_test_id("features").evaluate(RELEASE)
    soon(lambda: tried(kernels)[-1], FIRST.replace("64", "4,096"))
    assert len(tried(kernels)) <= len(before) + 1
    kernels.get_by_test_id("live").filter(has_text="4,096 features").wait_for(state="attached")


def test_a_setting_that_was_tried_comes_back(kernels: Any, soon: Any) -> None:
    kernels.get_by_test_id("head").select_option("sharp head")
    kernels.get_by_test_id("feature").select_option("trigonometric")
    kernels.get_by_test_id("summary").filter(has_text="divided by a number below zero").wait_for()
    soon(
        lambda: tried(kernels)[-1],
        "sharp head: random: cos and sin, 128 features, orthogonal, seed 0",
    )
    kernels.get_by_role("button", name="sharp head: random: positive, 64 features").click()
    soon(lambda: said(kernels).startswith("Random: positive, 64 features"), True)
    current = kernels.locator(".kl-again[aria-current=true] .kl-said").inner_text()
    assert current.startswith("sharp head: random: positive")


def test_the_curve_has_a_point_for_each_number(kernels: Any, soon: Any) -> None:
    soon(lambda: kernels.locator(".kl-dot").count(), lambda count: count >= 11)
    label = kernels.get_by_test_id("curve").get_attribute("aria-label")
    assert "4 features" in label
    assert "4,096 features" in label
    kernels.get_by_test_id("feature").select_option("elu")
    soon(lambda: kernels.locator(".kl-dot").count(), 0)
    assert kernels.get_by_test_id("features").is_disabled()


def test_a_pair_is_read_by_keys_and_by_pointing(kernels: Any, soon: Any) -> None:
    pair = kernels.get_by_test_id("pair")
    assert pair.inner_text().startswith("Most apart: ")
    kernels.get_by_test_id("maps").focus()
    kernels.page.keyboard.press("Home")
    soon(lambda: pair.inner_text(), lambda text: "(0): exact 1.00, by features 1.00" in text)
    kernels.page.keyboard.press("ArrowDown")
    soon(lambda: "(1) to The (0): " in pair.inner_text(), True)
    soon(lambda: kernels.get_by_test_id("live").inner_text() == pair.inner_text(), True)
    kernels.page.keyboard.press("Escape")
    soon(lambda: pair.inner_text().startswith("Most apart: "), True)
    canvas = kernels.locator(".kl-map canvas").nth(2)
    box = canvas.bounding_box()
    canvas.hover(position={"x": 60, "y": box["height"] - 6})
    soon(lambda: " to The (0): " in pair.inner_text(), True)


def test_nothing_is_spoken_before_a_change(notebook: Any, page: Any, lab: Any) -> None:
    page.goto((lab.folder / "kernels.html").as_uri())
    fresh = page.get_by_test_id("kernel-lab")
    fresh.and_(page.locator("[data-drawn]")).wait_for()
    page.wait_for_timeout(900)
    assert fresh.get_by_test_id("live").inner_text() == ""
    assert fresh.get_by_test_id("speed").inner_text().startswith("128 tokens, 4 heads of width ")
    fresh.get_by_test_id("more").click()
    assert fresh.get_by_test_id("seed").is_visible()
    assert not fresh.get_by_test_id("length").is_visible(), "nobody is there to measure"


def test_python_has_the_same_and_measures(notebook: Any, soon: Any) -> None:
    widget = notebook.output(0).get_by_test_id("kernel-lab")
    begin(widget)
    slide(widget, "features", 2)
    widget.get_by_test_id("features").evaluate(RELEASE)
    soon(lambda: said(widget).startswith("Random: positive, 16 features"), True)
    wanted = {"said": said(widget), "features": 16, "tried": tried(widget), "timed": True}
    told(notebook, lambda now: wanted.items() <= now.items())
    soon(
        lambda: widget.get_by_test_id("speed").inner_text(),
        lambda text: text.startswith("128 tokens, 4 heads of width "),
    )
    notebook.write(1, "lab.feature = 'dpfp'" + ASK)
    notebook.run(1)
    widget.get_by_test_id("summary").filter(has_text="DPFP, ").wait_for()
    soon(lambda: tried(widget)[-1].startswith("gentle head: DPFP"), True)
