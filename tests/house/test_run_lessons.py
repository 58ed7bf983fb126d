"""`.ci/lessons.py` says where a strictly compared cell prints other than is stored."""

from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lessons(script):
    return script("lessons")


def cell(code, printed, *tags):
    output = nbformat.v4.new_output("stream", name="stdout", text=printed)
    return nbformat.v4.new_code_cell(code, metadata={"tags": list(tags)}, outputs=[output])


def test_only_what_is_compared_strictly_counts(lessons, tmp_path):
    strict = "nbval-check-output"
    cells = [cell("print(1)\nprint(2)", "1\n2\n", strict), cell("print(3)", "4\n")]
    cells += [cell("print(5)\nprint(6)", "5\n7\n", strict), cell("1 / 0", "")]
    path = tmp_path / "lesson.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells[:3]), path)
    before = path.read_bytes()
    assert lessons.differences(path) == [f"[{cells[2].id}] - 7", f"[{cells[2].id}] + 6"]
    assert path.read_bytes() == before
    nbformat.write(nbformat.v4.new_notebook(cells=cells[3:]), path)
    (stopped,) = lessons.differences(path)
    assert "ZeroDivisionError" in stopped
