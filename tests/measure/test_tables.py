"""Files of rows: several processes in one file, and several files as one."""

import json
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from attnlab import experiments
from attnlab.experiments.__main__ import main
from attnlab.measure import merge_command
from attnlab.measure.__main__ import main as measure_main
from attnlab.measure.report import Row, plain
from attnlab.measure.tables import merged, stored, write_rows
from attnlab.parallel.launch import in_processes

PLANTED = '''"""Planted: two grids of tiny models, and who trained each."""

import os
from pathlib import Path

from attnlab.experiments.grid import Arm, Grid, Grids
from attnlab.tasks import task

def score(trained):
    with Path(__file__).with_name("who").open("a") as file:
        file.write(f"{trained.name}, {trained.seed} by {os.getpid()}\\n")
    return {"number": float(sum(map(ord, trained.name)) + trained.seed), "other": 2.0}

def grid(names):
    copying = task("copying", items=5, symbols=5)
    return Grid(
        arms={name: Arm(copying) for name in names}, score=score, steps=1,
        model={"dim": 4, "layers": 1, "heads": 1}, training={"batch_size": 2},
        baselines={f"chance of {names}": lambda quick: 20.0},
    )

GRID = Grids((grid("ab"), grid("c")))
rows, batches = GRID.rows, GRID.batches
'''
UNITS = 3 * 3 + 2  # trainings and baselines


def _runs(group: Any, folder: str, name: str) -> None:
    """One process of ``python -m attnlab.experiments planted --part K/N``; ``name`` is its file."""
    experiments.__path__.append(folder)
    path = Path(folder) / name.format(group.rank)
    part = f"{group.rank + 1}/{group.size}"
    assert main(["planted", "--threads", "1", "--part", part, "--json", str(path)]) == 0


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: Any) -> Path:
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.setattr(experiments, "__path__", [*experiments.__path__, str(tmp_path)])
    return tmp_path


def rows_of(path: Path) -> dict[str, Any]:
    rows = stored(path, "experiments", quick=False)["planted"]
    assert len({row["figure"] for row in rows}) == len(rows)
    return {row["figure"]: row for row in rows}


def test_processes_that_share_an_experiment_and_its_file(planted: Path) -> None:
    """Each training is trained once, the file has all rows, and a whole run finds nothing to do."""
    in_processes(_runs, 2, str(planted), "rows.json")
    who = (planted / "who").read_text().splitlines()
    assert len({line.split(" by ")[0] for line in who}) == len(who) == 9
    assert len({line.split(" by ")[1] for line in who}) == 2
    assert len(rows_of(planted / "rows.json")) == 9 * 2 + 2
    whole = ["planted", "--threads", "1", "--json"]
    assert main([*whole, str(planted / "rows.json")]) == 0
    assert len((planted / "who").read_text().splitlines()) == 9
    assert main([*whole, str(planted / "alone.json")]) == 0
    files = [json.loads((planted / name).read_text()) for name in ("rows.json", "alone.json")]
    assert files[0]["experiments"] == files[1]["experiments"]  # the order, too


def test_files_of_parts_are_joined(planted: Path, capsys: Any) -> None:
    in_processes(_runs, 2, str(planted), "part-{}.json")
    parts = [planted / f"part-{rank}.json" for rank in (0, 1)]
    found = [rows_of(path) for path in parts]
    assert not set(found[0]) & set(found[1])
    joined = planted / "all.json"
    assert main(["merge", *map(str, parts), "--json", str(joined)]) == 0
    assert rows_of(joined) == found[0] | found[1]
    assert capsys.readouterr().out == "planted: 20 rows\n"
    assert main(["merge", *map(str, parts), "--json", str(joined)]) == 2
    assert "is there already: name it among the files" in capsys.readouterr().err
    assert main(["merge", *map(str, [joined, *parts]), "--json", str(joined)]) == 0


def test_a_run_that_trains_nothing_leaves_the_machines_of_a_joined_file(planted: Path) -> None:
    for rank in (0, 1):
        part = f"{rank + 1}/2"
        given = ["--threads", "1", "--part", part, "--json", str(planted / f"part-{rank}")]
        assert main(["planted", *given]) == 0
    parts, joined = [planted / "part-0", planted / "part-1"], planted / "joined"
    elsewhere = json.loads(parts[1].read_text())
    elsewhere["machine"]["processor"] = "another"
    parts[1].write_text(json.dumps(elsewhere))
    assert main(["merge", *map(str, parts), "--json", str(joined)]) == 0
    before = json.loads(joined.read_text())["machine"]
    assert before["processor"].endswith("; another")
    assert main(["planted", "--threads", "1", "--json", str(joined)]) == 0
    assert json.loads(joined.read_text())["machine"] == before


def test_the_machine_of_a_file_is_that_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    for processor, figures, measured, wanted in (
        ("A", "a", 1.0, "A"),  # the first
        ("B", "ab", 1.0, "A; B"),  # a is kept, b is new
        ("C", "ab", 1.0, "A; B"),  # nothing is new
        ("A", "c", 1.0, "A; B"),
        ("D", "abc", 2.0, "D"),  # nothing is kept
    ):
        rows = [plain(Row(figure, measured, quartiles=(0.5, 2.0))) for figure in figures]
        described = {"processor": processor}
        write_rows(path, "topics", "one", rows, described=described, quick=False)
        assert json.loads(path.read_text())["machine"] == {"processor": wanted}


def test_rows_that_come_while_files_are_joined_are_kept(tmp_path: Path, monkeypatch: Any) -> None:
    """The file that is written to is one of those that are joined, and a run writes to it."""
    first, second = (file_of(tmp_path / name, Row(name, 1.0)) for name in "ab")
    late = [plain(Row("late", 1.0))]
    run = Thread(
        target=write_rows, args=(Path(first), "experiments", "one", late),
        kwargs={"described": {"processor": "A"}, "quick": False},
    )  # fmt: skip

    def slowly(*given: Any) -> Any:
        together = merged(*given)
        run.start()
        run.join(1.0)
        return together

    monkeypatch.setattr(merge_command, "merged", slowly)
    assert main(["merge", first, second, "--json", first]) == 0
    run.join()
    found = stored(Path(first), "experiments", quick=False)["one"]
    assert {row["figure"] for row in found} == {"a", "b", "late"}


def test_nothing_is_joined_in_a_folder_that_is_not_there(tmp_path: Path, capsys: Any) -> None:
    first = file_of(tmp_path / "a", Row("x", 1.0))
    assert main(["merge", first, "--json", str(tmp_path / "no" / "joined")]) == 2
    assert "does not exist; make it first" in capsys.readouterr().err


def test_more_parts_than_trainings(planted: Path, capsys: Any) -> None:
    given = ["planted", "--threads", "1", "--json", str(planted / "rows.json")]
    assert main([*given, "--part", f"{UNITS + 1}/20"]) == 2
    assert f"there are only {UNITS} to share; use at most {UNITS}" in capsys.readouterr().err
    assert not (planted / "rows.json").exists()
    assert main([*given, "--part", f"{UNITS}/20"]) == 0
    assert list(rows_of(planted / "rows.json")) == ["c, number, seed 2", "c, other, seed 2"]


def _writes(group: Any, path: str, times: int) -> None:
    """All write to one experiment, each the rows that it has by then."""
    rows = []
    for number in range(times):
        rows.append(plain(Row(f"row {number} of {group.rank}", number, "%")))
        write_rows(
            Path(path), "experiments", "one", list(rows), described={"cores": "2"}, quick=False
        )


def test_processes_that_write_to_one_file_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    in_processes(_writes, 3, str(path), 40)
    found = {row["figure"] for row in stored(path, "experiments", quick=False)["one"]}
    assert found == {f"row {number} of {rank}" for number in range(40) for rank in range(3)}
    assert list(tmp_path.iterdir()) == [path]


def test_a_whole_run_leaves_out_what_is_no_longer_measured(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    for figures, whole in (("ab", False), ("bc", False), ("c", True)):
        rows = [plain(Row(figure, 1.0)) for figure in figures]
        write_rows(path, "topics", "one", rows, described={"cores": "2"}, quick=False, whole=whole)
        found = [row["figure"] for row in stored(path, "topics", quick=False)["one"]]
        assert found == {"ab": ["a", "b"], "bc": ["b", "c", "a"], "c": ["c"]}[figures]


def file_of(path: Path, *rows: Row, kinds: str = "experiments", **other: Any) -> str:
    said = {"machine": {"processor": "A", "load at the start": str(path)}, "quick": False}
    path.write_text(json.dumps({**said, kinds: {"one": [plain(row) for row in rows]}, **other}))
    return str(path)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"rows": [Row("x", 51.0, "%")]}, "disagree about 'x' of one: 50 and 51 %; leave out"),
        (
            {"rows": [Row("x", 50.0, "%", note="other")]},
            "disagree about the note of 'x' of one: nothing and other; leave out",
        ),
        (
            {"rows": [Row("x", 50.0, "%", quartiles=(49.0, 51.0))]},
            "disagree about the quartiles of 'x' of one: nothing and [49.0, 51.0]; leave out",
        ),
        ({"rows": [Row("x", 50.0, "s")]}, "disagree about the unit of 'x' of one: % and s; leave"),
        ({"rows": [], "quick": True}, "rows of --quick are not joined with others"),
        ({"rows": [], "machine": {}}, "holds something else than results of experiments"),
        ({"rows": [], "machine": "A"}, "holds something else than results of experiments"),
        ({}, "there is no file"),
    ],
)
def test_files_that_do_not_agree(second: Any, sentence: str, tmp_path: Path, capsys: Any) -> None:
    first, joined = file_of(tmp_path / "a", Row("x", 50.0, "%")), tmp_path / "joined"
    if second:
        file_of(tmp_path / "b", *second.pop("rows"), **second)
    assert main(["merge", first, str(tmp_path / "b"), "--json", str(joined)]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert str(tmp_path / "b") in told
    assert told.count("\n") == 1
    assert not joined.exists()


def test_what_was_not_measured_in_one_file_is_taken_from_the_other(tmp_path: Path) -> None:
    failed, done, joined = Row("x", None, note="no time"), Row("x", 2.0, "%"), tmp_path / "joined"
    files = [file_of(tmp_path / "a", failed), file_of(tmp_path / "b", done, Row("y", 1.0))]
    for order in (files, files[::-1]):
        assert main(["merge", *order, "--json", str(joined)]) == 0
        found = stored(joined, "experiments", quick=False)["one"]
        assert {row["figure"]: row["measured"] for row in found} == {"x": 2.0, "y": 1.0}
        joined.unlink()


def test_figures_of_two_machines(tmp_path: Path, capsys: Any) -> None:
    """Scores of trainings may stand in one file, which names both; times are compared on one."""
    other = {"processor": "B", "load at the start": "2"}
    for kinds, run, code in (("experiments", main, 0), ("topics", measure_main, 2)):
        files = [
            file_of(tmp_path / f"{kinds}-a", Row("x", 1.0), kinds=kinds),
            file_of(tmp_path / f"{kinds}-b", Row("y", 1.0), kinds=kinds, machine=other),
        ]
        joined = tmp_path / f"{kinds}-joined"
        assert run(["merge", *files, "--json", str(joined)]) == code
    assert json.loads((tmp_path / "experiments-joined").read_text())["machine"] == {
        "processor": "A; B", "load at the start": f"{tmp_path / 'experiments-a'}; 2"
    }  # fmt: skip
    told = capsys.readouterr().err
    assert "of different machines (processor: A; B)" in told
    same = [file_of(tmp_path / name, Row(name, 1.0), kinds="topics") for name in "pq"]
    assert measure_main(["merge", *same, "--json", str(joined)]) == 0


def test_a_fact_that_only_one_machine_has(tmp_path: Path, capsys: Any) -> None:
    """Whatever the order of the files, it is named; a joined file that is joined again names no
    machine twice."""
    on_one = {"processor": "A", "GPU": "G"}
    for kinds, run in (("experiments", main), ("topics", measure_main)):
        without = file_of(tmp_path / "a", Row("x", 1.0), kinds=kinds, machine={"processor": "A"})
        with_one = file_of(tmp_path / "b", Row("y", 1.0), kinds=kinds, machine=on_one)
        for order, said in (((without, with_one), "none; G"), ((with_one, without), "G; none")):
            joined = tmp_path / f"{kinds}-{said}"
            code = run(["merge", *order, "--json", str(joined)])
            assert code == (2 if kinds == "topics" else 0)
            if kinds == "topics":
                assert f"of different machines (GPU: {said})" in capsys.readouterr().err
                continue
            assert json.loads(joined.read_text())["machine"] == {"processor": "A", "GPU": said}
            assert run(["merge", str(joined), *order, "--json", str(joined)]) == 0
            assert json.loads(joined.read_text())["machine"] == {"processor": "A", "GPU": said}


def test_a_file_that_does_not_say_whether_it_was_quick(tmp_path: Path, capsys: Any) -> None:
    """It was not: its rows are joined, and --quick does not replace them."""
    old = Path(file_of(tmp_path / "old", Row("x", 1.0)))
    old.write_text(
        json.dumps({k: v for k, v in json.loads(old.read_text()).items() if k != "quick"})
    )
    new, joined = file_of(tmp_path / "new", Row("y", 1.0)), tmp_path / "joined"
    assert main(["merge", str(old), new, "--json", str(joined)]) == 0
    found = stored(joined, "experiments", quick=False)["one"]
    assert [row["figure"] for row in found] == ["x", "y"]
    with pytest.raises(OSError, match="holds rows that --quick would replace"):
        stored(old, "experiments", quick=True)
