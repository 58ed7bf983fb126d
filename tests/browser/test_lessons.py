"""Every lesson, opened and run from top to bottom as its reader would: the one time that it runs.

What it prints where a cell is tagged `nbval-check-output` is what is stored; all else must come
without an error, a warning, or a request to another machine; pictures and widgets must be drawn.
`make test` rehearses trainings (``rehearsal``). What a green run with whole trainings has read is
kept for `make check` (``green``).
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.browser import green, rehearsal

DRAWN = {
    "application/vnd.plotly.v1+json": ".js-plotly-plot .main-svg",
    "application/vnd.jupyter.widget-view+json": ".jp-OutputArea-output > .lm-Widget",
}
COMPARED, TRAINED = "nbval-check-output", "holds-with-room"
"""Tags of what is compared, and of what holds only after a whole training."""
REHEARSED = rehearsal.VARIABLE in os.environ
pytestmark = [pytest.mark.browser, pytest.mark.slow]

FOLDER = Path(__file__).parents[2] / "notebooks"
LESSONS = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_runs_from_top_to_bottom(lesson, opened_alone, tabs, watched):
    book = opened_alone(f"{lesson}.ipynb")
    book.run_all(seconds=900)
    book.screenshot(lesson)
    cells = book.saved()
    assert compared(cells) == compared(stored(lesson))
    unsolved = [output for cell in cells for output in cell["outputs"] if "Not yet." in str(output)]
    assert len(unsolved) >= 2, "an exercise says that it is not solved yet"
    shown = {kind: book.holding(kind) for kind in DRAWN}
    assert any(shown.values()), "a picture is there before the first guess"
    for kind, selector in DRAWN.items():
        assert [number for number in shown[kind] if not book.draws(number, selector)] == []
    if watched and not REHEARSED:
        assert not tabs.heard
        green.keep(lesson, watched / f"{lesson}.txt")


def stored(lesson: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{lesson}.ipynb").read_text(encoding="utf-8")
    return [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def compared(cells: list[dict[str, Any]]) -> dict[int, list[tuple[str, str]]]:
    """What the tagged cells show, by the number of the code cell."""
    return {
        number: texts(cell["outputs"])
        for number, cell in enumerate(cells)
        if COMPARED in (tags := cell["metadata"].get("tags", []))
        and not (REHEARSED and TRAINED in tags)
    }


def texts(outputs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The kind (a stream's name, a MIME type) and the text of each output; streams are joined."""
    found: list[tuple[str, str]] = []
    for output in outputs:
        stream = {output["name"]: output["text"]} if "name" in output else {}
        for kind, value in sorted((stream or output["data"]).items()):
            text = "".join(value) if isinstance(value, list) else str(value)
            if stream and found and found[-1][0] == kind:
                text = found.pop()[1] + text
            found.append((kind, text))
    return found
