"""SignalLab in JupyterLab and as a file: what is dragged and drawn is what Python computes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from attnlab_widgets.signal_lab import SignalLab

from attnlab.mechanisms.recurrence.s4d import S4D, S4DOptions
from tests.browser.widget_pages import (
    drag,
    in_a_notebook,
    in_both,
    middle,
    pixels,
    said,
    saved,
    told,
)

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.signal_lab import SignalLab
lab = SignalLab()
lab.save_html("signal.html", title="<Signal>")
lab
"""
ASK = """
import json
print(json.dumps({"said": lab.description(), "poles": lab.poles, "taps": lab.taps,
                  "signal": lab.signal, "token": lab.token,
                  "output": [f"{value:.3f}" for value in (lab.output() + 0).tolist()]}))
"""


def begin(lab: Any) -> None:
    choose(lab, "step", "S4D-Lin")
    choose(lab, "step", "one pole")
    lab.get_by_test_id("summary").filter(has_text="One pole, steps of 0.2").wait_for()


notebook = in_a_notebook("signal_lab", MAKE, ASK)
lab_on_page = in_both("signal-lab", "signal.html", begin)


def choose(lab: Any, signal: str, kernel: str) -> None:
    lab.get_by_test_id("signal-preset").select_option(signal)
    lab.get_by_test_id("kernel-preset").select_option(kernel)


def bars(lab: Any, testid: str) -> list[float]:
    """The heights of the bars of a chart."""
    found = lab.get_by_test_id(testid).locator(".sl-bar")
    return found.evaluate_all("bars => bars.map(bar => Number(bar.getAttribute('height')))")


def test_a_dragged_pole_changes_kernel_and_map(lab_on_page: Any, soon: Any, still: Any) -> None:
    lab = lab_on_page
    still(lab)
    kernel, seen = bars(lab, "kernel"), pixels(lab.get_by_test_id("map"))
    x, y = middle(lab.get_by_test_id("pole-0").locator(".qp-reach"))
    drag(lab.page, (x, y), (x - 20, y - 30))
    soon(lambda: "fades to half in 6.9" in said(lab), False)
    soon(lambda: bars(lab, "kernel") != kernel, True)
    assert pixels(lab.get_by_test_id("map")) != seen
    assert lab.get_by_test_id("kernel-preset").input_value() == ""


def test_an_unstable_pole_stays_on_the_axis(lab_on_page: Any, soon: Any, still: Any) -> None:
    lab = lab_on_page
    still(lab)
    pole = lab.get_by_test_id("pole-0")
    x, y = middle(pole.locator(".qp-reach"))
    drag(lab.page, (x, y), (x + 90, y))
    tried = lab.get_by_test_id("try")
    soon(lambda: "it stays on the axis" in tried.inner_text(), True)
    soon(lambda: (pole.get_attribute("aria-valuetext") or "").startswith("0.00 + 2.0"), True)
    assert "does not fade" in said(lab)
    pole.focus()
    lab.page.keyboard.press("Shift+ArrowLeft")
    soon(lambda: tried.inner_text().startswith("Try:"), True)


def test_the_signal_is_drawn_by_hand_and_by_keys(lab_on_page: Any, soon: Any, still: Any) -> None:
    lab = lab_on_page
    still(lab)
    chart = lab.get_by_test_id("signal")
    box, before = chart.bounding_box(), bars(lab, "output")
    right = box["x"] + box["width"]
    drag(lab.page, (right - 80, box["y"] + 20), (right - 20, box["y"] + box["height"] - 20))
    soon(lambda: lab.get_by_test_id("signal-preset").input_value(), "")
    soon(lambda: bars(lab, "output") != before, True)
    readout = lab.get_by_test_id("signal-readout")
    token, value = readout.inner_text().removeprefix("Token ").split(": ")
    assert value.startswith("−")
    chart.focus()
    lab.page.keyboard.press("ArrowUp")
    lab.page.keyboard.press("ArrowUp")
    raised = float(value.replace("−", "-")) + 0.2
    soon(lambda: readout.inner_text(), f"Token {token}: {raised:.3f}".replace("-", "−"))
    lab.page.keyboard.press("ArrowLeft")
    soon(lambda: readout.inner_text().startswith(f"Token {int(token) - 1}:"), True)


def test_typed_numbers_and_their_errors(lab_on_page: Any, soon: Any) -> None:
    lab = lab_on_page
    lab.get_by_test_id("more").click()
    lab.get_by_test_id("taps-text").fill("1 −1 what")
    lab.page.keyboard.press("Enter")
    soon(lambda: "“what” is not a number" in lab.get_by_test_id("try").inner_text(), True)
    lab.get_by_test_id("taps-text").fill("1, −1")
    lab.page.keyboard.press("Enter")
    soon(lambda: "2 taps:" in said(lab), True)
    assert len(bars(lab, "taps")) == 2
    assert lab.get_by_test_id("step").is_disabled()
    lab.get_by_test_id("add-pole").click()
    soon(lambda: lab.get_by_test_id("poles").locator(".qp-grip").count(), 2)
    lab.page.keyboard.press("Escape")
    lab.get_by_test_id("pole-1").focus()
    lab.page.keyboard.press("Delete")
    soon(lambda: lab.get_by_test_id("poles").locator(".qp-grip").count(), 1)


def test_the_tables_have_the_numbers(lab_on_page: Any, soon: Any) -> None:
    lab = lab_on_page
    choose(lab, "impulse", "one pole")
    tables = lab.get_by_test_id("as-tables")
    tables.locator("summary").click()
    rows = lab.get_by_test_id("tokens-table").locator("tbody tr")
    soon(lambda: rows.count(), 64)
    first, ninth = (rows.nth(at).locator("td").all_inner_texts() for at in (0, 8))
    assert first[2] == ninth[4], "the output to an impulse is the kernel"
    assert "fades to half in 6.9 tokens" in lab.get_by_test_id("poles-table").inner_text()
    tables.locator("summary").click()


def test_python_has_the_same_numbers(notebook: Any, soon: Any) -> None:
    lab = notebook.output(0).get_by_test_id("signal-lab")
    choose(lab, "chirp", "S4D-LegS")
    lab.get_by_test_id("pole-1").focus()
    lab.page.keyboard.press("Shift+ArrowUp")
    lab.get_by_test_id("rule").select_option("bilinear")
    soon(lambda: "bilinear" in said(lab), True)
    readout = lab.get_by_test_id("output-readout")
    before = readout.inner_text()
    lab.get_by_test_id("output").focus()
    lab.page.keyboard.press("ArrowRight")
    soon(lambda: readout.inner_text() != before, True)
    shown = [said(lab), readout.inner_text()]
    # The token is sent once Python has answered for the rule: the cell may run before.
    found = told(notebook, lambda now: [now["said"], read_out(now)] == shown)
    assert [found["said"], read_out(found)] == shown


def read_out(found: dict[str, Any]) -> str:
    """The page's line of the chosen token, of what Python holds."""
    token = found["token"]
    return f"Token {token}: {found['output'][token]}".replace("-", "−")


@pytest.mark.parametrize(("skip", "cut"), [(0.0, False), (-2.0, True)])
def test_what_is_cut_is_not_to_scale_wherever_it_is_drawn(
    page: Any, tmp_path: Path, skip: float, cut: bool
) -> None:
    """In the impulse response, on the diagonal of the map, and in the line over the signal."""
    made = SignalLab("chirp")
    made.skip = skip
    lab = saved(page, made.save_html(tmp_path / "cut.html"), "signal-lab", 993)
    panels = [
        lab.locator("section", has=page.get_by_test_id(name))
        for name in ("kernel", "map", "signal")
    ]
    found = [panel.inner_text().count("not to scale") for panel in panels]
    assert found == [cut] * 3
    heads = [panel.locator("h3").last for panel in panels[1:]]
    cut_off = [head.evaluate("h => h.scrollWidth - h.clientWidth") for head in heads]
    assert max(cut_off) <= 0, "what is said is not clipped"
    assert page.evaluate("document.documentElement.scrollWidth") <= 993


def test_what_nobody_trained_says_so_and_no_heading_is_cut(page: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    layer = S4D(4, options=S4DOptions(state=8))
    path = SignalLab("chirp", layer, untrained=True).save_html(tmp_path / "untrained.html")
    for wide in (993, 390):
        lab = saved(page, path, "signal-lab", wide)
        label = lab.get_by_text("untrained", exact=True)
        assert label.count() == 1
        cut = (
            "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.innerText)"
        )
        assert lab.locator("h3:visible").evaluate_all(cut) == []
    lab.get_by_test_id("kernel-preset").select_option("one pole")
    label.wait_for(state="detached")
