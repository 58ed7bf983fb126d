"""The survey's table of a GPU in JupyterLab and as a file; the device that it names is made up."""

from typing import Any

import pytest

from tests.browser.widget_pages import saved, told

pytestmark = pytest.mark.browser

ROWS = """
import contextlib, io, json
from pathlib import Path
from attnlab.measure.__main__ import main
from attnlab.measure.rows import read
asked = ["full", "multi_query", "--device", "cpu", "--dtype", "float32", "--dim", "16"]
asked += ["--heads", "2", "--threads", "1", "--lengths", "32", "64"]
with contextlib.redirect_stderr(io.StringIO()):
    main(["gpu", *asked, "--json", "cpu.jsonl"])
Path("gpu.jsonl").write_text("".join(json.dumps(
    row | {"device": "cuda", "machine": row["machine"] | {"GPU": "a pretended GPU"}}
) + "\\n" for row in read(Path("cpu.jsonl"))))
"""
MAKE = """
import attnlab
table = attnlab.survey(gpu="gpu.jsonl")
table.save_html("on_a_gpu.html")
plain = attnlab.survey()
plain.save_html("plain.html")
table
"""
ASK = """
print(json.dumps({"shelf": table.shelf, "order": table.order, "down": table.down,
                  "shown": [row["name"] for row in table.shown()]}))
"""


@pytest.fixture(scope="module")
def notebook(opened: Any) -> Any:
    notebook = opened("survey_on_a_gpu.ipynb", (ROWS, MAKE, ASK))
    notebook.run_all()
    notebook.output(1).locator("[data-drawn]").wait_for()
    return notebook


@pytest.fixture(params=["JupyterLab", "a saved file"])
def table(request: pytest.FixtureRequest, notebook: Any, lab: Any) -> Any:
    if request.param == "JupyterLab":
        return notebook.output(1).get_by_test_id("survey")
    return saved(request.getfixturevalue("page"), lab.folder / "on_a_gpu.html", "survey")


def test_the_forms_stand_beside_the_cpu_and_are_sorted(table: Any, soon: Any) -> None:
    table.get_by_test_id("shelf").select_option(label="forms on a pretended GPU")
    rows = table.get_by_test_id("forms").locator("tr")
    soon(rows.count, 3)
    assert table.get_by_test_id("rows").is_hidden()
    assert "a pretended GPU" in table.get_by_test_id("machine").inner_text()
    table.get_by_test_id("form-both").focus()
    table.page.keyboard.press("Enter")
    head = table.locator("th[aria-sort]:visible")
    soon(lambda: head.get_attribute("aria-sort"), "ascending")
    table.page.keyboard.press("Enter")
    soon(lambda: head.get_attribute("aria-sort"), "descending")
    cells = table.evaluate(
        "table => [...table.querySelectorAll('[data-testid=forms] tr')].map("
        "row => [...row.children].map(cell => cell.textContent))"
    )
    times = [float(cell[4].removesuffix(" ms at 64")) for cell in cells]
    assert times == sorted(times, reverse=True)
    (grouped,) = (row for row in cells if row[0] == "multi_query (grouped)")
    assert grouped[1] == "–", "the CPU's exponent is that of the last form"
    assert grouped[3].endswith(" ms at 64")
    assert "→" in grouped[6]
    assert grouped[7].endswith("%")
    why = table.get_by_role("button", name="not fitted: why").first
    why.focus()
    table.page.keyboard.press("Enter")
    soon(lambda: "tokens take" in table.get_by_test_id("said").inner_text(), True)
    table.get_by_test_id("search").fill("full attention")
    soon(rows.count, 1)
    table.get_by_test_id("search").fill("")
    table.get_by_test_id("shelf").select_option("mechanisms")
    soon(lambda: table.get_by_test_id("forms").is_hidden(), True)
    assert table.get_by_test_id("rows").locator("tr").count() > 50


def test_what_is_chosen_on_the_page_is_known_in_python(notebook: Any, soon: Any) -> None:
    table = notebook.output(1).get_by_test_id("survey")
    table.get_by_test_id("shelf").select_option("gpu")
    table.get_by_test_id("form-share").click()
    found = told(notebook, lambda now: (now["shelf"], now["order"]) == ("gpu", "share"), cell=2)
    drawn = table.get_by_test_id("forms").locator("tr")
    soon(lambda: drawn.first.get_attribute("data-name"), found["shown"][0])


def test_without_a_file_there_is_no_such_choice(notebook: Any, lab: Any, page: Any) -> None:
    table = saved(page, lab.folder / "plain.html", "survey")
    assert "gpu" not in table.get_by_test_id("shelf").locator("option").evaluate_all(
        "all => all.map(one => one.value)"
    )
