"""The core of a lesson by the clock."""

from pathlib import Path

import pytest

from tools.course import clock
from tools.course.lesson import read

LESSONS = sorted(Path("notebooks").glob("[0-9]*_*.ipynb"))


def cell(kind: str, source: str, **more: object) -> dict[str, object]:
    metadata = {"tags": more.pop("tags", [])}
    return {"cell_type": kind, "id": source[:4], "source": [source], "metadata": metadata, **more}


def test_minutes_by_what_is_done_in_them() -> None:
    words = "## One\n" + "word " * 198  # and two of the heading
    widget = {"data": {"application/vnd.jupyter.widget-view+json": {}, "image/png": ""}}
    picture = {"data": {"application/vnd.plotly.v1+json": {}}}
    shown = cell("code", "a = 1\n\nb = 2\n" * 4, outputs=[widget, picture, {"text": ["7"]}])
    exercise = cell("code", "x = ...", tags=["exercise"], outputs=[])
    folded = "### 2 · Build — ●○○, 9 minutes\n\nDo it."
    solution = "<details><summary>Solution</summary>\n\n```python\nx = 1\n```\n\n</details>"
    notebook = {
        "metadata": {"attnlab": {"core": {"sections": ["One"], "exercises": [2]}, "seconds": 30}},
        "cells": [
            *(cell("code", "import torch", tags=["setup"]), cell("markdown", words), shown),
            cell("markdown", "## Two\n" + "more " * 500),
            cell("markdown", folded, tags=["exercise"]),
            *(exercise, cell("markdown", solution)),
        ],
    }
    found = clock.clock(notebook)
    assert (found.prose, found.code, found.pictures) == (1.0, 1.0, 2.5)
    assert (found.guesses, found.runs, found.exercises) == (0.0, 0.5, 9.0)
    assert found.total == 14.0
    assert clock.clock(notebook, {"impo": 6.0, "a = ": 12.0, "x = ": 60.0}).runs == 0.3
    assert clock.report([("a", found)]).splitlines()[-1].split() == [
        *("a", "1.0", "1.0", "2.5", "0.0", "0.5", "9.0", "14"),
    ]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_core_of_a_lesson_holds_by_the_clock(path: Path) -> None:
    found = clock.clock(read(path))
    assert found.total <= clock.LONGEST, clock.report([(path.stem, found)])
    assert min(found.prose, found.code, found.exercises) > 1
