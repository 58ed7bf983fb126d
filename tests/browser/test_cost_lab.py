"""CostLab and the survey's table in JupyterLab and as files: claim, count, measure; sort, check."""

from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, saved, slide, told

pytestmark = pytest.mark.browser

MAKE = """
from attnlab_widgets.cost_lab import CostLab
lab = CostLab(n=1024, dim=32, heads=2, options={"window": 16})
lab.save_html("costs.html")
lab
"""
TABLE = """
import attnlab
table = attnlab.survey()
table.save_html("survey.html")
table
"""
ASK = """
import json
found = lab.measured or {}
print(json.dumps({"claims": lab.claims, "n": lab.n, "options": lab.options,
                  "exponent": lab.exponent(), "rows": len(found.get("rows", [])),
                  "checked": [row["name"] for row in table.rows if row["checked"]]}))
"""


notebook = in_a_notebook("cost_lab", MAKE, TABLE, ASK, shown=2)


def test_a_claim_shows_the_curve_and_a_measurement_comes(notebook: Any, soon: Any) -> None:
    lab = notebook.output(0).get_by_test_id("cost-lab")
    assert lab.locator(".cl-own").count() == 0
    assert lab.get_by_test_id("measure").is_disabled()
    lab.get_by_test_id("claim-n").focus()
    lab.page.keyboard.press("Enter")
    soon(lambda: lab.locator("polyline.cl-own").count(), 1)
    soon(lambda: lab.locator("svg circle.cl-counted").count() >= 5, True)
    assert "from n = 17 on" in lab.get_by_test_id("crossover").inner_text()
    lab.get_by_test_id("measure").click()
    soon(lambda: lab.locator("rect.cl-timed.cl-of-base").count(), 5)
    soon(lambda: "measured" in lab.get_by_test_id("exponents").inner_text(), True)
    assert "Beside full attention, its layer is" in lab.get_by_test_id("measured").inner_text()
    slide(lab, "n", 6)
    slide(lab, "option-window", 6)
    soon(lambda: "from n = 4,097 on" in lab.get_by_test_id("crossover").inner_text(), True)
    lab.get_by_test_id("as-tables").locator("summary").click()
    soon(lambda: lab.get_by_test_id("table").locator("tbody tr").count(), 15)
    wanted = {"n": 4096, "options": {"window": 4096}, "claims": {"longformer": "n"}}
    told(notebook, lambda now: wanted.items() <= now.items(), cell=2)


def test_a_row_is_sorted_and_checked(notebook: Any, soon: Any) -> None:
    table = notebook.output(1).get_by_test_id("survey")
    names = table.locator("tbody tr")
    assert "Linear" not in names.first.inner_text()
    table.get_by_test_id("search").fill("linear transf")
    soon(lambda: names.first.get_attribute("data-name"), "linear")
    table.get_by_test_id("check-linear").click()
    soon(lambda: "Counted now: n^1.00" in table.get_by_test_id("said").inner_text(), True)
    table.get_by_test_id("search").fill("")
    table.get_by_test_id("sort-counted").click()
    table.get_by_test_id("sort-counted").click()
    head = table.locator("th[aria-sort]")
    soon(lambda: head.get_attribute("aria-sort"), "descending")
    counted = [float(text) for text in names.locator("td:nth-of-type(5)").all_inner_texts()]
    assert counted == sorted(counted, reverse=True)
    told(notebook, lambda now: now["checked"] == ["linear"], cell=2)


def test_saved_files_are_alive(notebook: Any, lab: Any, page: Any, soon: Any) -> None:
    costs = saved(page, lab.folder / "costs.html", "cost-lab")
    costs.get_by_test_id("mechanism").select_option("performer")
    soon(lambda: "Performer" in costs.get_by_test_id("question").inner_text(), True)
    costs.get_by_test_id("claim-n²").click()
    soon(lambda: "nearest: n;" in costs.get_by_test_id("exponents").inner_text(), True)
    assert not costs.get_by_test_id("measure").is_visible(), "no button that cannot work"
    assert "→ you said n², it is nearest to n" in costs.get_by_test_id("question").inner_text()
    costs.get_by_test_id("claim-n").click()
    soon(lambda: costs.get_by_test_id("question").inner_text().endswith("✓ n"), True)
    table = saved(page, lab.folder / "survey.html", "survey")
    table.get_by_test_id("family").select_option("lowrank")
    soon(lambda: table.locator("tbody tr").first.get_attribute("data-name"), "linformer")
    assert table.get_by_test_id("check-linformer").count() == 0
