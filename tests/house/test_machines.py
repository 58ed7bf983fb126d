"""`.ci/machines.py` runs what it is given on each machine that it imitates, and names the red."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / ".ci/machines.py"
spec = importlib.util.spec_from_file_location("machines", FILE)
machines = importlib.util.module_from_spec(spec)
spec.loader.exec_module(machines)

TEST = """
import os

def test_a_sum_of_a_few():
    assert (os.environ.get("MKL_CBWR"), os.environ["OMP_NUM_THREADS"]) != ("COMPATIBLE", "1")
"""


def test_the_red_machines_are_named(tmp_path, monkeypatch):
    (tmp_path / "test_few.py").write_text(TEST)
    old = machines.OLD | {"MKL_CBWR": "COMPATIBLE"}
    monkeypatch.setattr(machines, "MACHINES", {"an old one": (old, 1), "two threads": ({}, 2)})
    given = [str(tmp_path), f"--rootdir={tmp_path}", "-c", "/dev/null", "-p", "no:jaxtyping"]
    assert machines.main(given) == "Red: an old one"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], [*machines.PYTEST, *machines.SELECTION]),
        (["tests/core"], [*machines.PYTEST, "tests/core"]),
        (["--lessons", "05"], [".ci/lessons.py", "05"]),
    ],
)
def test_what_is_run(given, wanted):
    assert machines.command(given)[1:] == wanted


def test_the_selection_is_there():
    assert all((FILE.parents[1] / each).is_dir() for each in machines.SELECTION)
