"""The table of contents of the checks: each is found by its name alone, and no list is kept."""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab import exercises
from attnlab.exercises import Verdict
from attnlab.exercises.check import Check

LESSONS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MODULES = [
    importlib.import_module(f"attnlab.exercises.{found.name}")
    for found in pkgutil.iter_modules(exercises.__path__)
]


def is_check(module, name):
    """Does the module define a check of this name?"""
    value = getattr(module, name)
    gives = (
        Verdict if isinstance(value, Check) else getattr(value, "__annotations__", {}).get("return")
    )
    return name.startswith("check_") and value.__module__ == module.__name__ and gives is Verdict


def test_every_check_of_the_folder_is_reached_by_its_name_and_named_once() -> None:
    defined = [(name, each) for each in MODULES for name in vars(each) if is_check(each, name)]
    assert sorted(name for name, _ in defined) == sorted(set(exercises.__all__) - {"Verdict"})
    for name, module in defined:
        assert getattr(exercises, name) is getattr(module, name)
        assert getattr(exercises, name).__name__ == name


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem[:2])
def test_what_a_lesson_imports_is_there(path) -> None:
    cells = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    wanted = set(re.findall(r"\bcheck_\w+(?=\()", text))
    assert wanted <= {*exercises.__all__, *re.findall(r"def (check_\w+)", text)}


def test_help_says_what_each_asks_in_the_order_of_the_lessons() -> None:
    table = exercises.__doc__ or ""
    for name in set(exercises.__all__) - {"Verdict"}:
        line = re.search(rf"^    {name} +\S+ \S+", table, re.MULTILINE)
        assert line, name
    lessons = [int(number) for number in re.findall(r"^Checks? of lessons? (\d\d)", table, re.M)]
    assert lessons == sorted(lessons)
    assert max(map(len, table.splitlines())) <= 100


def test_completion_shows_the_names_and_an_error_the_nearest() -> None:
    assert set(exercises.__all__) <= set(dir(exercises))
    with pytest.raises(AttributeError, match=r"has no 'check_atention'; did you mean 'check_att"):
        _ = exercises.check_atention
    with pytest.raises(AttributeError, match=r"has no '__wrapped__'$"):
        _ = exercises.__wrapped__


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, attnlab.exercises as e; pages = [m for m in sys.modules if e.__name__ in m];"
        "assert len(pages) < 5, pages; from attnlab.exercises import *; assert check_backward"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
