"""The survey's rows of a GPU, from a file of `python -m attnlab.measure gpu`.

No GPU is at hand: rows of a real run of the command on the CPU are given the name of a device that
does not exist, so that nothing here can be taken for a result.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import traitlets
from attnlab_widgets.survey import STORED, Survey, on_a_gpu, survey
from attnlab_widgets.survey.on_a_gpu import cells

from attnlab.measure.__main__ import main
from attnlab.measure.gpu_command import COUNTED, launches
from attnlab.measure.rows import read
from attnlab.measure.subject import subject
from tests.widgets.stored import stored, write

PRETENDED = "a pretended GPU"
ASKED = [
    "gpu", "full", "multi_query", "--device", "cpu", "--dtype", "float32", "--dim", "16", "--heads",
    "2", "--threads", "1", "--lengths", "32", "64",
]  # fmt: skip
CHOSEN: list[dict[str, Any]] = [
    {"order": "year", "down": False, "family": "", "search": ""},
    {"order": "both", "down": True, "family": "", "search": ""},
    {"order": "share", "down": False, "family": "", "search": ""},
    {"order": "measured", "down": False, "family": "kernelized", "search": ""},
    {"order": "name", "down": False, "family": "", "search": "full attention"},
]
Rows = list[dict[str, Any]]


def there(row: dict[str, Any]) -> dict[str, Any]:
    """The row as if it came from another device."""
    return row | {"device": "cuda", "machine": row["machine"] | {"GPU": PRETENDED}}


def write_rows(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def invented() -> Rows:
    """Rows with figures that are made up, every kind of gap among them: the page is tried with
    these, as measured ones differ from machine to machine. 1.125 and 11.25 %
    are ties, which Python's own formats would round to an even digit."""
    empty = {"interval": None, "cpu": None, "cpu_interval": None, "because": "", "unfitted": ""}
    empty |= {"forward": None, "forward_n": None, "both": None, "both_n": None, "beside": ""}
    empty |= {"starts": [], "share": None, "share_n": None, "measured": None}

    def row(name: str, title: str, family: str, **found: Any) -> dict[str, Any]:
        about = {"name": name, "mechanism": name.split()[0], "title": title, "family": family}
        return about | {"year": 2020} | empty | found

    return [
        row("full (fused)", "Full attention", "dense", cpu=1.708, cpu_interval=[1.488, 1.928],
            measured=1.9, interval=[1.85, 1.95], forward=0.0004, forward_n=32768, both=0.00124,
            both_n=32768, starts=[[512, 38], [2048, 38]], share=0.8049, share_n=32768),
        row("linear (chunked)", "Linear Transformer", "kernelized", measured=1.125, both=1.5,
            both_n=1024, beside="faster from n = 4,000 on (3,500 … 4,500, 95%)", share=0.1125,
            share_n=1024, starts=[[512, 21018], [2048, 83994]], forward=0.5, forward_n=1024),
        row("linear (recurrent)", "Linear Transformer", "kernelized", because="left out"),
        row("gtn (edges)", "Graph Transformer Networks", "structure", forward=1.0, forward_n=64,
            starts=[[512, None], [2048, None]], unfitted="one length"),
    ]  # fmt: skip


def arranged(rows: Rows, chosen: dict[str, Any]) -> list[str]:
    found = Survey()
    found.set_trait("_forms", rows)
    for name, value in chosen.items():
        setattr(found, name, value)
    return [row["name"] for row in on_a_gpu.shown(rows, found)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What the command writes, of a device that does not exist."""
    path = tmp_path_factory.mktemp("gpu") / "cpu.jsonl"
    assert main([*ASKED, "--json", str(path)]) == 0
    return [there(row) for row in read(path)]


@pytest.fixture
def file(rows: Rows, tmp_path: Path) -> Path:
    return write_rows(tmp_path / "gpu.jsonl", rows)


def test_every_form_of_the_file_has_a_row_with_the_device_and_the_cpus_exponent(
    rows: Rows, file: Path
) -> None:
    found = survey(gpu=file)
    known = {row["name"]: row for row in found.forms}
    assert list(known) == ["full (fused)", "multi_query (grouped)", "multi_query (fused)"]
    cpu = json.loads(STORED.read_text())["rows"]["multi_query"]
    last = known["multi_query (fused)"]
    assert (last["cpu"], last["cpu_interval"]) == (cpu["measured"], cpu["interval"])
    assert known["multi_query (grouped)"]["cpu"] is None, "only the last form was timed on the CPU"
    for which in ("forward", "both"):
        (timed,) = [
            row for row in rows
            if (row["mechanism"], row["form"], row["pass"], row["n"]) == (
                "multi_query", "fused", which, 64,
            )
        ]  # fmt: skip
        assert (last[which], last[f"{which}_n"]) == (timed["median"], 64)
    counted = [
        [n, launches(subject("multi_query", form="fused", dim=16, heads=2), n)] for n in COUNTED
    ]
    assert last["starts"] == counted
    (flops,) = [
        row["flops"] for row in rows
        if (row["mechanism"], row["form"], row["pass"], row["n"]) == (
            "multi_query", "fused", "counted", 64,
        )
    ]  # fmt: skip
    peak = rows[-1]["peak"]
    assert last["share"] == pytest.approx(flops / last["forward"] / peak)
    found.shelf = "gpu"
    assert PRETENDED in repr(found)
    drawn = found.still().svg("")
    assert PRETENDED in drawn
    assert cells(last)[4] in drawn


def test_a_slower_form_is_said_to_be_so(rows: Rows, tmp_path: Path) -> None:
    """Times are made up here: the crossover and the exponent are those of the summary."""

    def timed(row: dict[str, Any]) -> dict[str, Any]:
        if not row["seconds"] or row["mechanism"] != "multi_query":
            return row
        seconds = [1e-3 * row["n"] for _ in row["seconds"]]
        base = [1e-3 * row["n"] ** 2 / 48 for _ in row["seconds"]]
        return row | {"seconds": seconds, "median": seconds[0], "baseline_seconds": base}

    path = write_rows(tmp_path / "made_up.jsonl", [timed(row) for row in rows])
    last = survey(gpu=path).forms[-1]
    assert last["measured"] is None, "n = 32 takes less than three times what 16 tokens take"
    assert "at n = 32 it takes less than 3 times" in last["unfitted"]
    longer = [
        row | {"n": 4 * row["n"]} if row["n"] > 16 and row["seconds"] else row for row in rows
    ]
    path = write_rows(tmp_path / "longer.jsonl", [timed(row) for row in longer])
    last = survey(gpu=path).forms[-1]
    assert (last["measured"], last["unfitted"]) == (1.0, "")
    assert last["beside"].startswith("faster at every length measured, from n = 128 on")


def test_without_a_file_nothing_of_it_is_there() -> None:
    found = survey()
    assert (found.forms, found._device, found._timed_on) == ([], "", "")
    for name, value in (("shelf", "gpu"), ("order", "share"), ("order", "both")):
        with pytest.raises(traitlets.TraitError, match="this table was given none"):
            setattr(found, name, value)
    assert (found.shelf, found.order) == ("mechanisms", "year")


def test_an_order_of_the_forms_leaves_the_mechanisms_as_they_are(file: Path) -> None:
    found = survey(gpu=file)
    before = [row["name"] for row in found.rows]
    found.order = "share"
    assert [row["name"] for row in found.shown()] == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [], "has no times"),
        (lambda rows: [row for row in rows if not row["seconds"]], "has no times"),
        (lambda rows: [*rows, rows[0] | {"dtype": "bfloat16"}], "2 machines, widths or precis"),
        (lambda rows: [*rows, rows[0] | {"machine": {"GPU": "another"}}], "another"),
        (lambda rows: [*rows, rows[0] | {"mechanism": "later"}], r"of later \(fused\), which this"),
        (lambda rows: [*rows, rows[0] | {"form": "later"}], r"of full \(later\), which this"),
        (lambda rows: [{"mechanism": "full"}], "line 1, is not a row of a sweep"),
        (lambda rows: [*rows[:-1], rows[-1] | {"peak": 0}], "is not a row of a sweep"),
        (lambda rows: [*rows[:-1], rows[-1] | {"operations": "38"}], "is not a row of a sweep"),
    ],
)
def test_a_file_that_holds_none_is_refused(
    rows: Rows, tmp_path: Path, change: Callable[[Rows], Rows], words: str
) -> None:
    path = write_rows(tmp_path / "other.jsonl", change(rows))
    with pytest.raises(ValueError, match=words):
        survey(gpu=path)


def test_a_name_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*measure gpu --json"):
        survey(gpu=tmp_path / "none.jsonl")
    with pytest.raises(TypeError, match="`gpu` should be the name of a file, got 3"):
        survey(gpu=3)  # type: ignore[arg-type]


def test_what_the_page_is_tested_with_is_arranged_and_told_as_in_python() -> None:
    given = stored("forms.json")
    assert given["rows"] == invented()
    for chosen, names in given["cases"]:
        assert arranged(given["rows"], chosen) == names
    assert [cells(row) for row in given["rows"]] == given["cells"]


if __name__ == "__main__":
    made = invented()
    cases = [[chosen, arranged(made, chosen)] for chosen in CHOSEN]
    write("forms.json", {"rows": made, "cases": cases, "cells": [cells(row) for row in made]})
