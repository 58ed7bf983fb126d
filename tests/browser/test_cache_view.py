"""CacheView in JupyterLab and as a file: the bill follows what is switched."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, said, saved, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets import CacheView
view = CacheView()
view.save_html("cache.html", title="<Cache>")
view
"""
ASK = """
import json
print(json.dumps({"said": view.description(), "layers": view.layers, "bytes": view.layer_bytes()}))
"""


def begin(view: Any) -> None:
    view.get_by_test_id("model").select_option("llama")
    view.get_by_test_id("model").select_option("gpt_oss")
    view.get_by_test_id("scope").select_option("this layer")
    slide(view, "tokens", 20)
    view.get_by_test_id("summary").filter(has_text="gpt_oss, 1,048,576 tokens: 36").wait_for()


notebook = in_a_notebook("cache_view", MAKE, ASK)
view = in_both("cache-view", "cache.html", begin)


def test_three_of_four_layers_get_a_window(view: Any, soon: Any) -> None:
    assert "18 × keys and values of 8 groups keep nearly all" in said(view)
    view.get_by_test_id("scope").select_option("three of four layers")
    view.get_by_test_id("kind").select_option("window")
    soon(lambda: "keep 19.3 GB, 2 times less than the model (38.7 GB)" in said(view), True)
    assert "27 × window of 128 tokens" in view.get_by_test_id("legend").inner_text()
    view.get_by_test_id("bits").select_option("2")
    soon(lambda: "in 2 bits" in said(view), True)
    view.get_by_test_id("live").filter(has_text="in 2 bits").wait_for(state="attached")


def test_keys_choose_a_layer_and_a_click_does(view: Any, soon: Any) -> None:
    stack = view.get_by_test_id("stack")
    stack.focus()
    view.page.keyboard.press("ArrowUp")
    soon(lambda: stack.get_attribute("aria-valuetext"), "Layer 2: window of 128 tokens, 260 kB")
    view.page.keyboard.press("End")
    soon(lambda: stack.get_attribute("aria-valuenow"), "35")
    view.get_by_test_id("layer-1").click()
    soon(lambda: stack.get_attribute("aria-valuenow"), "1")
    view.get_by_test_id("kind").select_option("shared")
    soon(lambda: "17 × keys and values" in said(view), True)


def test_tokens_flow_in(view: Any, soon: Any) -> None:
    slide(view, "tokens", 7)
    soon(lambda: "gpt_oss, 128 tokens: 36 layers keep 9.4 MB" in said(view), True)
    label = view.get_by_test_id("growth").get_attribute("aria-label")
    assert label.endswith("and 38.7 GB after 1,048,576")
    view.get_by_test_id("play").click()
    soon(lambda: "128 tokens" not in said(view), True)
    view.get_by_test_id("play").click()


def test_python_has_the_same_numbers(notebook: Any, soon: Any) -> None:
    view = notebook.output(0).get_by_test_id("cache-view")
    view.get_by_test_id("model").select_option("kimi_linear")
    view.get_by_test_id("scope").select_option("all layers")
    view.get_by_test_id("kind").select_option("mqa")
    soon(lambda: "27 × keys and values of one group keep all" in said(view), True)
    found = told(notebook, lambda now: now["said"] == said(view))
    assert found["layers"] == ["mqa"] * 27


@pytest.mark.parametrize("wide", [390, 993])
def test_a_page_fits_a_telephone(
    page: Any, lab: Any, notebook: Any, overlapping: Any, wide: int
) -> None:
    view = saved(page, lab.folder / "cache.html", "cache-view", wide)
    for name in ("deepseek_v3", "mamba2", "llama"):
        view.get_by_test_id("model").select_option(name)
        view.get_by_test_id("summary").filter(has_text=name).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
        assert overlapping(view) == []
