"""`python -m attnlab.measure`, on a topic planted for the occasion."""

import importlib
import json
import sys

import pytest

from attnlab.measure import benchmarks
from attnlab.measure.__main__ import main
from attnlab.measure.report import Row

TRIVIAL = '''"""Trivial: one plus one."""

from attnlab.measure.report import Row

def rows(*, quick, threads):
    yield Row("one plus one", 2.0, "units", at_most=3.0, note=f"quick={quick}, threads={threads}")
'''


@pytest.fixture
def _trivial(tmp_path, monkeypatch):
    """A topic is found because its file lies in the folder, and for no other reason."""
    (tmp_path / "trivial.py").write_text(TRIVIAL)
    monkeypatch.setattr(benchmarks, "__path__", [*benchmarks.__path__, str(tmp_path)])
    yield
    sys.modules.pop("attnlab.measure.benchmarks.trivial", None)


@pytest.mark.usefixtures("_trivial")
def test_list_walks_the_folder(capsys):
    assert main(["--list"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert listed["trivial"] == "Trivial: one plus one."
    assert {"dense", "lowrank", "start", "training"} <= set(listed)


@pytest.mark.usefixtures("_trivial")
def test_quick_run_of_one_topic(capsys, tmp_path):
    file = tmp_path / "rows.json"
    assert main(["trivial", "--quick", "--threads", "1", "--json", str(file)]) == 0
    shown, progress = capsys.readouterr()
    assert progress == "one plus one: 2.00 units\n"  # as it comes, before the table
    assert "threads: 1" in shown
    assert "not the figures to report" in shown
    assert "2.00 units" in shown
    assert "quick=True, threads=1" in shown
    written = json.loads(file.read_text())
    assert written["quick"] is True
    assert list(written["topics"]) == ["trivial"]
    assert written["topics"]["trivial"][0]["met"] is True


@pytest.mark.usefixtures("_trivial")
def test_two_runs_on_one_file_keep_the_rows_of_both(monkeypatch, tmp_path):
    file = tmp_path / "rows.json"
    given = ["trivial", "--quick", "--json", str(file)]
    trivial = importlib.import_module("attnlab.measure.benchmarks.trivial")

    def meanwhile(**_):
        row = {"figure": "two", "measured": 2.0, "unit": "units"}
        other = {"machine": {"cores": 1}, "quick": True, "topics": {"other": [row]}}
        file.write_text(json.dumps(other))
        yield Row("one plus one", 2.0, "units")

    monkeypatch.setattr(trivial, "rows", meanwhile)
    assert main(given) == 0
    assert set(json.loads(file.read_text())["topics"]) == {"trivial", "other"}


@pytest.mark.usefixtures("_trivial")
def test_markdown(capsys):
    main(["trivial", "--markdown"])
    assert "| one plus one |" in capsys.readouterr().out


def test_unknown_topic_names_the_known_ones(capsys):
    assert main(["trainning"]) == 2
    assert "no topic 'trainning'; did you mean 'training'?" in capsys.readouterr().err


def test_what_cannot_be_run_is_said_without_a_traceback(capsys):
    assert main(["notebooks", "nosuch.ipynb"]) == 2
    assert "python -m tools.notebooks" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["start", "--threads", "0"])
    assert "a whole number of at least 1 is needed, got '0'" in capsys.readouterr().err
