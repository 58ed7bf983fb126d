"""Code of lessons in a process of its own."""

import os

import pytest

from tools.course import apart
from tools.course.apart import needs_a_process, value_apart


def test_the_environment_of_this_process_stays_as_it_is() -> None:
    code = 'import os\nos.environ["ATTNLAB_APART"] = "1"\nfound = [True, "ℓ", 2.5]'
    assert value_apart(code, 'found + [os.environ["ATTNLAB_APART"]]') == [True, "ℓ", 2.5, "1"]
    assert "ATTNLAB_APART" not in os.environ


@pytest.mark.parametrize("copied", [True, False])
def test_no_code_sees_what_another_has_left(copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "COPIED", copied and apart.COPIED)
    before = "import os\nfound = [1]"
    code = 'print("no answer")\nos.environ["ATTNLAB_APART"] = "1"\nfound.append(2)'
    for _ in range(2):
        expression = '[os.environ.get("ATTNLAB_APART"), *found]'
        assert value_apart("", expression, before) == [None, 1]
        assert value_apart(code, expression, before) == ["1", 1, 2]


def test_imports_run_once() -> None:
    before = "import os\nprocess = os.getpid()"
    first, second = (value_apart("", "[process, os.getpid()]", before) for _ in range(2))
    assert (first[0] == second[0]) == apart.COPIED
    assert (first[1] == first[0]) == (not apart.COPIED)


def test_what_is_wrong_with_the_imports_is_told_each_time() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ModuleNotFoundError: No module named 'not_there'"):
            value_apart("", "1", "import not_there")


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(RuntimeError, match="no word of it"):
        value_apart("import os\nos._exit(3)", "1")


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
