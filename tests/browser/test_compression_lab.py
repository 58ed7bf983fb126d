"""CompressionLab in JupyterLab and as a file: sliders answer without a kernel."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, in_both, pixels, said, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.compression_lab.example import example

lab = example()
lab.save_html("compression.html")
lab
"""
ASK = """
import json
print(json.dumps({"said": lab.description(), "state": [lab.student, lab.kept, lab.bits, lab.cut]}))
"""


def begin(lab: Any) -> None:
    slide(lab, "student", 0)
    slide(lab, "kept", 4)
    slide(lab, "bits", 2)
    lab.get_by_test_id("cut").select_option("all weights")
    lab.get_by_test_id("summary").filter(has_text="The model, 40 % of all weights").wait_for()


notebook = in_a_notebook("compression_lab", MAKE, ASK)
lab_page = in_both("compression-lab", "compression.html", begin)


def test_the_share_changes_numbers_histogram_and_maps(lab_page: Any, soon: Any) -> None:
    canvas = lab_page.get_by_test_id("map-after").locator("canvas")
    before, bytes_before = pixels(canvas), lab_page.get_by_test_id("bytes").text_content()
    slide(lab_page, "kept", 1)
    soon(lambda: said(lab_page).startswith("The model, 10 % of all weights kept"), True)
    soon(lambda: pixels(canvas) != before, True)
    assert lab_page.get_by_test_id("bytes").text_content() != bytes_before


def test_a_student_takes_the_place_of_the_model(lab_page: Any, soon: Any) -> None:
    slide(lab_page, "student", 1)
    soon(lambda: said(lab_page).startswith("8 wide, 40 % of all weights kept"), True)


def test_arrow_keys_read_out_a_pair(lab_page: Any, soon: Any) -> None:
    readout = lab_page.get_by_test_id("readout")
    lab_page.get_by_test_id("map-difference").focus()
    before = readout.text_content()
    lab_page.page.keyboard.press("ArrowDown")
    soon(lambda: readout.text_content() != before, True)


def test_python_says_what_the_page_says(notebook: Any, soon: Any) -> None:
    lab = notebook.output(0).get_by_test_id("compression-lab")
    begin(lab)
    slide(lab, "bits", 3)
    found = told(notebook, lambda now: now["said"] == said(lab))
    assert found["state"] == ["the model", 0.4, 6, "all weights"]
