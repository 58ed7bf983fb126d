"""`python -m attnlab.experiments`, on an experiment planted for the occasion."""

import json
import sys
from pathlib import Path

import pytest

from attnlab import experiments
from attnlab.experiments.__main__ import main
from attnlab.measure import command

ASSETS = Path(__file__).parents[2] / "attnlab/experiments/assets"
TRIVIAL = '''"""Trivial: one plus one."""

from attnlab.measure.report import Row

def rows(*, quick, threads):
    yield Row("one plus one, seed 0", 2.0, "%", note=f"quick={quick}, threads={threads}")
'''


@pytest.fixture
def _trivial(tmp_path, monkeypatch):
    (tmp_path / "trivial.py").write_text(TRIVIAL)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    yield
    sys.modules.pop("attnlab.experiments.trivial", None)


@pytest.mark.usefixtures("_trivial")
def test_list_shows_every_experiment_with_its_title(capsys):
    assert main(["--list"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert listed["trivial"] == "Trivial: one plus one."
    assert {"grids", "needle", "pixels", "summaries", "synthesizer"} <= set(listed)


@pytest.mark.usefixtures("_trivial")
def test_one_experiment_writes_its_rows(capsys, tmp_path):
    file = tmp_path / "rows.json"
    assert main(["trivial", "--quick", "--threads", "1", "--json", str(file)]) == 0
    assert "quick=True, threads=1" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert written["experiments"]["trivial"][0]["measured"] == 2.0


def test_an_unknown_experiment_is_refused_with_the_nearest_name(capsys):
    assert main(["neddle"]) == 2
    assert "no experiment 'neddle'; did you mean 'needle'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", command.names(experiments))
def test_the_stored_rows_of_each_experiment_load_and_carry_no_threshold(name):
    stored = [json.loads(path.read_text()) for path in ASSETS.glob("[0-9]*.json")]
    rows = [row for one in stored for row in one.get("experiments", {}).get(name, ())]
    assert len(rows) >= 20
    assert all(row.get("met") is None for row in rows)
    assert all(isinstance(row["measured"], float) or row["note"] for row in rows)


BY_FIGURE = '''"""Slow: two figures."""

from attnlab.measure.report import Row

measured = []

def figures(*, quick):
    return ["one", "two", "three"]

def row(figure, *, quick, threads):
    if figure == "three" and measured == ["one", "two"] and not quick:
        raise KeyboardInterrupt
    measured.append(figure)
    return Row(figure, 1.5 if figure == "one" else None, quartiles=(1.0, 2.0), note="because")
'''


def test_an_interrupted_experiment_keeps_its_rows_and_goes_on(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(BY_FIGURE)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    file = tmp_path / "rows.json"
    command_line = ["slow", "--threads", "1", "--json", str(file)]
    with pytest.raises(KeyboardInterrupt):
        main(command_line)
    slow = sys.modules.pop("attnlab.experiments.slow")
    assert slow.measured == ["one", "two"]
    first = json.loads(file.read_text())["experiments"]["slow"]
    assert [row["figure"] for row in first] == ["one", "two"]
    main(command_line)
    slow = sys.modules.pop("attnlab.experiments.slow")
    assert slow.measured == ["three"]
    rows = json.loads(file.read_text())["experiments"]["slow"]
    assert [row["figure"] for row in rows] == ["one", "two", "three"]
    assert rows[:2] == first
    without_one = json.loads(file.read_text())
    del without_one["experiments"]["slow"][0]
    file.write_text(json.dumps(without_one))
    monkeypatch.setattr(command, "table", lambda *rows, **how: 1 / 0)  # interrupted at the end
    with pytest.raises(ZeroDivisionError):
        main(command_line)
    assert sys.modules.pop("attnlab.experiments.slow").measured == ["one"]
    assert len(json.loads(file.read_text())["experiments"]["slow"]) == 3
    monkeypatch.undo()
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    assert main([*command_line, "--quick"]) == 2  # it would replace the rows of the full run
    assert json.loads(file.read_text())["quick"] is False
    assert main([*command_line[:-1], str(tmp_path / "quick.json"), "--quick"]) == 0
    (tmp_path / "quick.json").replace(file)
    sys.modules.pop("attnlab.experiments.slow")
    with pytest.raises(KeyboardInterrupt):
        main(command_line)  # rows of another kind of run are not kept
    assert sys.modules.pop("attnlab.experiments.slow").measured == ["one", "two"]


OF_A_GRID = '''"""Grid: two trainings of two rows."""

from attnlab.measure.report import Row

measured = []

def batches(*, quick, threads, kept, mine):
    for name in ("one", "two", "three"):
        figures = [f"{name}, {what}" for what in ("loss", "right")]
        if name == "three" and measured == ["one", "two"]:
            raise KeyboardInterrupt
        if figures[0] not in kept:
            measured.append(name)
        yield [kept.get(figure) or Row(figure, 1.0) for figure in figures]
'''


def test_rows_of_a_grid_are_kept_training_by_training(tmp_path, monkeypatch):
    (tmp_path / "gridded.py").write_text(OF_A_GRID)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    file = tmp_path / "rows.json"
    command_line = ["gridded", "--threads", "1", "--json", str(file)]
    with pytest.raises(KeyboardInterrupt):
        main(command_line)
    assert sys.modules.pop("attnlab.experiments.gridded").measured == ["one", "two"]
    assert len(json.loads(file.read_text())["experiments"]["gridded"]) == 4
    main(command_line)
    assert sys.modules.pop("attnlab.experiments.gridded").measured == ["three"]
    assert len(json.loads(file.read_text())["experiments"]["gridded"]) == 6
