"""Code of lessons in a process of its own."""

import os

import pytest

from tools.course.apart import needs_a_process, value_apart


def test_the_environment_of_this_process_stays_as_it_is() -> None:
    code = 'import os\nos.environ["ATTNLAB_APART"] = "1"\nfound = [True, "ℓ", 2.5]'
    assert value_apart(code, 'found + [os.environ["ATTNLAB_APART"]]') == [True, "ℓ", 2.5, "1"]
    assert "ATTNLAB_APART" not in os.environ


def test_the_source_of_a_function_can_be_read() -> None:
    code = "import inspect\ndef twice(x):\n    return 2 * x"
    assert value_apart(code, "inspect.getsource(twice)").startswith("def twice(x):")


def test_an_error_is_told_by_its_last_line() -> None:
    with pytest.raises(RuntimeError, match="ValueError: what is wrong"):
        value_apart('raise ValueError("what is wrong")', "1")


@pytest.mark.parametrize(("line", "needed"), [('os.environ["A"] = "1"', True), ("x = 1", False)])
def test_a_lesson_that_sets_the_environment_needs_one(line: str, needed: bool) -> None:
    cell = {"cell_type": "code", "metadata": {"tags": ["setup"]}, "source": f"import os\n{line}"}
    assert needs_a_process({"cells": [cell]}) is needed
