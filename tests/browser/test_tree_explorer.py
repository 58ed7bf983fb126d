"""TreeExplorer in JupyterLab and as a file: typed and drawn trees, the chosen cell, attention."""

import itertools
from typing import Any

import pytest

from tests.browser.widget_pages import in_a_notebook, saved, told

pytestmark = pytest.mark.browser

TEXT = "(S (NP the dog) (VP barks))"
MAKE = """
import torch
from attnlab_widgets.tree_explorer import TreeExplorer
TEXT = "(S (NP the dog) (VP barks))"
numbers = dict(leaf_values=[1, 2, 3], node_values=[10, 20, 30], weights=[1, 0.5, 2])
torch.manual_seed(0)
mask = torch.from_numpy(TreeExplorer(TEXT).mask)
maps = torch.randn(2, 3, 6, 6).masked_fill(~mask, float("-inf")).softmax(-1)
explorer = TreeExplorer(TEXT, attention={"trained": maps}, step="average", **numbers)
explorer.save_html("tree.html", title="<Tree>")
explorer
"""
ASK = """
import json
print(json.dumps({name: getattr(explorer, name) for name in
                  ("tree", "leaf_values", "node_values", "weights", "selected", "cell", "step",
                   "layer", "head")} | {"gathered": explorer.gathered.tolist()}))
"""
BACK = """
explorer.step, explorer.selected = "average", 3
with explorer.hold_sync():
    explorer.tree = TEXT
    for name, value in numbers.items():
        setattr(explorer, name, value)
"""


notebook = in_a_notebook("tree_explorer", MAKE, ASK, BACK)


@pytest.fixture(params=["JupyterLab", "a saved file"])
def explorer(request: pytest.FixtureRequest, notebook: Any, lab: Any, soon: Any) -> Any:
    if request.param == "JupyterLab":
        found = notebook.output(0).get_by_test_id("tree-explorer")
        begin_anew(notebook, found, soon)
    else:
        page = request.getfixturevalue("page")
        found = saved(page, lab.folder / "tree.html", "tree-explorer", wide=993)
    found.get_by_test_id("node-3").click()
    return found


TOKENS = itertools.count(1001)


def begin_anew(notebook: Any, explorer: Any, soon: Any) -> None:
    """The first tree, once the kernel knows what was changed last: it would come after it."""
    token = next(TOKENS)
    explorer.get_by_test_id("value").fill(str(token))

    told(notebook, lambda now: token in [*now["leaf_values"], *now["node_values"]])
    notebook.run(2)
    soon(explorer.get_by_test_id("tree").input_value, TEXT)


def numbers(explorer: Any, table: str) -> list[list[str]]:
    """The cells of a table, "" where one is hatched."""
    return explorer.get_by_test_id(table).evaluate(  # type: ignore[no-any-return]
        "table => [...table.rows].slice(1).map(row => [...row.querySelectorAll('td')]"
        ".map(cell => cell.textContent))"
    )


def test_the_chosen_cell_is_written_out(explorer: Any, expect: Any, soon: Any) -> None:
    wanted = [["10.33", "10.67", "14.33"], ["10.5", "11", ""], ["", "", "16.5"]]
    soon(lambda: numbers(explorer, "table-averages"), wanted)
    explorer.get_by_test_id("table-averages").locator('[data-row="0"][data-column="1"]').click()
    formula = explorer.get_by_test_id("formula")
    expect(formula).to_contain_text("(ℓ(dog) + n(NP) + n(S)) / 3")
    expect(formula).to_contain_text("(2 + 20 + 10) / 3")
    expect(formula).to_contain_text("= 10.67")
    expect(explorer.locator(".te-node.te-member")).to_have_count(3)
    expect(explorer.get_by_test_id("table-values").locator(".te-member")).to_have_count(3)
    explorer.get_by_test_id("table-averages").locator('[data-row="2"][data-column="0"]').click()
    expect(explorer.get_by_test_id("said")).to_contain_text("“the” is not below VP")
    explorer.get_by_test_id("step-interpolation").click()
    wanted = [["1", "2", "3"], ["10", "10", "10"], ["20", "20", ""], ["", "", "30"]]
    soon(lambda: numbers(explorer, "table-values"), wanted)


def test_a_tree_is_typed_and_an_error_names_its_column(explorer: Any, expect: Any) -> None:
    text = explorer.get_by_test_id("tree")
    text.fill("(S (NP the dog) (VP barks)")
    expect(explorer.get_by_test_id("error")).to_have_text(
        "column 1: 1 bracket is never closed, and it was opened here; add ')'"
    )
    expect(explorer.get_by_role("treeitem")).to_have_count(6)
    text.fill("(S (NP the dog) (VP barks (ADVP again)))")
    expect(explorer.get_by_test_id("error")).to_be_hidden()
    expect(explorer.get_by_role("treeitem")).to_have_count(8)
    expect(explorer.get_by_test_id("node-3")).to_contain_text("again")


def test_a_tree_that_is_too_large_is_refused(explorer: Any, expect: Any) -> None:
    text, add = explorer.get_by_test_id("tree"), explorer.get_by_test_id("add")
    text.fill(f"(S {'a ' * 24})")
    expect(explorer.get_by_role("treeitem")).to_have_count(25)
    add.click()
    error = explorer.get_by_test_id("error")
    expect(error).to_have_text("at most 24 words can be drawn, this tree has 25")
    expect(explorer.get_by_role("treeitem")).to_have_count(25)
    explorer.get_by_test_id("undo").click()
    expect(error).to_be_hidden()
    expect(text).to_have_value("(S (NP the dog) (VP barks))")


def test_a_tree_is_drawn_by_mouse(explorer: Any, expect: Any) -> None:
    text = explorer.get_by_test_id("tree")
    explorer.get_by_test_id("node-5").click()
    explorer.get_by_test_id("add").click()
    expect(text).to_have_value("(S (NP the dog) (VP barks word))")
    explorer.get_by_test_id("label").fill("at (cats)")
    expect(text).to_have_value("(S (NP the dog) (VP barks at␣-LRB-cats-RRB-))")
    explorer.get_by_test_id("wrap").click()
    expect(text).to_have_value("(S (NP the dog) (VP barks (X at␣-LRB-cats-RRB-)))")
    explorer.get_by_test_id("unwrap").click()
    expect(text).to_have_value("(S (NP the dog) (VP barks at␣-LRB-cats-RRB-))")
    chosen = explorer.locator('[role="treeitem"][tabindex="0"]')
    expect(chosen).to_have_attribute("data-key", "6")
    explorer.get_by_test_id("delete").click()
    expect(text).to_have_value("(S (NP the dog))")
    for _ in range(2):
        explorer.get_by_test_id("undo").click()
    expect(text).to_have_value("(S (NP the dog) (VP barks (X at␣-LRB-cats-RRB-)))")
    explorer.get_by_test_id("redo").click()
    expect(text).to_have_value("(S (NP the dog) (VP barks at␣-LRB-cats-RRB-))")


def test_a_tree_is_drawn_by_keys(explorer: Any, expect: Any) -> None:
    text, keys = explorer.get_by_test_id("tree"), explorer.page.keyboard
    explorer.get_by_test_id("node-3").focus()

    def press(key: str, selected: int) -> None:
        keys.press(key)
        chosen = explorer.locator('[role="treeitem"][tabindex="0"]')
        expect(chosen).to_have_attribute("data-key", str(selected))
        expect(chosen).to_be_focused()

    press("ArrowDown", 4)
    press("ArrowDown", 0)
    press("ArrowRight", 1)
    press("ArrowRight", 2)
    press("ArrowUp", 5)
    press("ArrowLeft", 4)
    press("Shift+ArrowRight", 4)
    press("w", 4)
    expect(text).to_have_value("(S (X (NP the dog) (VP barks)))")
    press("Control+z", 4)
    expect(text).to_have_value("(S (NP the dog) (VP barks))")
    press("a", 2)
    expect(text).to_have_value("(S (NP the dog word) (VP barks))")
    keys.press("Enter")
    keys.type("runs")
    expect(text).to_have_value("(S (NP the dog runs) (VP barks))")
    press("Enter", 2)
    press("Delete", 4)
    expect(text).to_have_value("(S (NP the dog) (VP barks))")
    press("ArrowRight", 5)
    explorer.get_by_test_id("node-5").hover()
    press("Delete", 2)
    expect(explorer.get_by_role("treeitem")).to_have_count(4)


def test_words_gathered_weights_and_sums(explorer: Any, expect: Any, soon: Any) -> None:
    explorer.get_by_test_id("step-aggregation").click()
    explorer.get_by_test_id("node-4").click()
    formula = explorer.get_by_test_id("formula")
    expect(formula).to_contain_text("v̄(NP)")
    expect(formula).to_contain_text("(1 · 10.5 + 0.5 · 11) / 2")
    expect(formula).to_contain_text("= 8")
    said = "the words' own values add 0.5, the phrases' values 7.5."
    expect(explorer.get_by_test_id("said")).to_contain_text(said)
    expect(explorer.locator("[data-bar]")).to_have_count(2)
    expect(explorer.locator("[data-share]")).to_have_text(["66 %", "34 %"])
    explorer.get_by_test_id("node-5").hover()
    expect(explorer.locator("[data-bar]")).to_have_count(1)
    expect(explorer.locator(".te-node.te-hot")).to_have_count(2)
    explorer.get_by_test_id("formula").hover()
    slider = explorer.get_by_test_id("weight-1")
    slider.evaluate("(input) => { input.value = 2; input.dispatchEvent(new Event('input')) }")
    expect(formula).to_contain_text("(1 · 10.5 + 2 · 11) / 2")
    expect(explorer.get_by_test_id("sum-1")).to_have_text("16.25")


def test_mask_and_attention(explorer: Any, expect: Any) -> None:
    explorer.get_by_test_id("step-mask").click()
    explorer.get_by_test_id("node-4").click()
    expect(explorer.get_by_test_id("said")).to_contain_text("may attend to 3 of 6: the, dog, NP.")
    expect(explorer.get_by_test_id("matrix").locator(".te-none")).to_have_count(36 - 20)
    expect(explorer.get_by_test_id("drawing").locator(".te-hatch")).to_have_count(3)
    explorer.get_by_test_id("node-1").click()
    expect(explorer.get_by_test_id("said")).to_contain_text("may attend to 3 of 6: the, dog, barks")
    explorer.get_by_test_id("step-attention").click()
    expect(explorer.get_by_test_id("matrix").locator(".te-none")).to_have_count(36 - 20)
    expect(explorer.get_by_test_id("weights").locator("li")).to_have_count(3)
    explorer.get_by_test_id("add").click()
    expect(explorer.get_by_test_id("matrix")).to_have_count(0)
    expect(explorer.get_by_text("Undo the changes to see it.")).to_be_visible()
    explorer.get_by_test_id("undo").click()
    expect(explorer.get_by_test_id("matrix")).to_be_visible()


def test_python_is_told(notebook: Any, soon: Any) -> None:
    explorer = notebook.output(0).get_by_test_id("tree-explorer")
    begin_anew(notebook, explorer, soon)
    explorer.get_by_test_id("node-5").click()
    explorer.get_by_test_id("add").click()
    explorer.get_by_test_id("value").fill("7")
    explorer.get_by_test_id("step-aggregation").click()
    explorer.get_by_test_id("table-averages").locator('[data-row="1"][data-column="0"]').click()

    tree = "(S (NP the dog) (VP barks word))"
    wanted = {"tree": tree, "leaf_values": [1, 2, 3, 7], "selected": 5, "cell": [1, 0]}
    wanted["step"] = "aggregation"
    found = told(notebook, lambda now: wanted.items() <= now.items())
    assert found["node_values"] == [10, 20, 30]
    said = [float(x) for x in explorer.locator("[data-testid^=sum-]").all_text_contents()]
    assert said == pytest.approx(found["gathered"], abs=0.005)


@pytest.mark.parametrize("wide", [700, 993, 1408])
def test_every_step_fits_a_cell(page: Any, notebook: Any, lab: Any, wide: int) -> None:
    found = saved(page, lab.folder / "tree.html", "tree-explorer", wide=wide)
    for step in ("average", "aggregation", "mask", "attention"):
        found.get_by_test_id(f"step-{step}").click()
        found.get_by_test_id(f"step-{step}").and_(page.locator('[aria-pressed="true"]')).wait_for()
        assert found.bounding_box()["height"] <= (760 if wide >= 993 else 1000)
        assert page.evaluate("document.documentElement.scrollWidth") <= wide
