"""The core of each lesson by the clock: what a student does in it, in minutes.

    python -m tools.course.clock                   all lessons; seconds as their headers say
    python -m tools.course.clock --run 40_….ipynb  runs the lesson and measures each cell

Nobody has been timed. What follows from the lesson: its words, its lines of code, its pictures, the
seconds of its cells (all of the lesson's, where they were not measured), the minutes that the
headings of its exercises state. What is estimated: the rates. 200 words a minute is Carver's rate
for learning from a text (Reading Rate: Theory, Research, and Practical Implications, Journal of
Reading 36, 1992); the mean of adults who read plain prose in their own language is 238 (Brysbaert,
Journal of Memory and Language 109, 2019). 8 lines a minute is more than twice the 200 lines an hour
that reviewers should not exceed (Kemerer and Paulk, IEEE Transactions on Software Engineering 35,
2009); a lesson is read, not reviewed. Half a minute for a picture, two for a widget and one for a
guess have no source.

``tools.course.core`` counts the minutes of the header in a coarser way, which needs no run: fewer
words a minute, in which the pictures and the guesses are contained.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from attnlab.measure.report import grid
from tools.course.core import parts
from tools.course.lesson import DETAILS, Cell, Notebook, exercises, prediction, read, source, tags

WORDS, LINES = 200, 8  # in a minute
PICTURE, WIDGET, GUESS = 0.5, 2.0, 1.0  # minutes
LONGEST = 50  # minutes
_WIDGET = "application/vnd.jupyter.widget-view+json"
_PICTURES = ("application/vnd.plotly.v1+json", "image/svg+xml", "image/png")


@dataclass(frozen=True)
class Clock:
    """Minutes of a core, by what is done in them."""

    prose: float
    code: float
    pictures: float
    guesses: float
    runs: float
    exercises: float

    @property
    def total(self) -> float:
        return sum(astuple(self))


def clock(notebook: Notebook, seconds: Mapping[str, float] | None = None) -> Clock:
    """The minutes of a lesson's core; ``seconds`` are those of its cells, by their ids. Without
    them the core is given the seconds of the whole lesson, as its header states them."""
    facts = notebook["metadata"]["attnlab"]
    core = [part for heading, part in parts(notebook) if heading in facts["core"]["sections"]]
    cells = [part for part in core if not isinstance(part, str)]
    asked = [found for cell in cells if (found := prediction(cell))]
    known = {one.number: one.minutes for _, one in exercises(notebook)}
    words = sum(len(DETAILS.sub("", part).split()) for part in core if isinstance(part, str))
    told = [(*one.choices, one.question, one.why, one.after) for one in asked]
    ran = [cell for cell in notebook["cells"] if cell in cells or "setup" in tags(cell)]
    took = sum(seconds.get(cell["id"], 0.0) for cell in ran) if seconds else facts["seconds"]
    return Clock(
        prose=(words + sum(len(" ".join(texts).split()) for texts in told)) / WORDS,
        code=sum(_lines(cell) for cell in cells if not prediction(cell)) / LINES,
        pictures=sum(map(_looking, cells)),
        guesses=len(asked) * (GUESS + PICTURE),  # and one look at what the guess shows
        runs=took / 60,
        exercises=sum(known[number] for number in facts["core"]["exercises"]),
    )


def _lines(cell: Cell) -> int:
    return sum(bool(line.strip()) for line in source(cell).splitlines())


def _looking(cell: Cell) -> float:
    """Minutes at what a cell shows."""
    shown = [set(output.get("data", ())) for output in cell.get("outputs", ())]
    if prediction(cell):
        return 0.0
    return sum(
        WIDGET if _WIDGET in kinds else PICTURE * bool(kinds & set(_PICTURES)) for kinds in shown
    )


def measured(path: Path) -> dict[str, float]:
    """The seconds of each code cell of a notebook, in a fresh kernel, predictions guessed."""
    import nbformat
    from nbclient import NotebookClient

    from attnlab.measure.memory import environment

    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.resolve().parent)}}
    client = NotebookClient(notebook, timeout=600, resources=folder)
    found = {}
    with client.setup_kernel(env={**environment(), "ATTNLAB_TRY_PREDICTIONS": "1"}):
        for index, cell in enumerate(notebook.cells):
            start = time.perf_counter()
            client.execute_cell(cell, index)
            if cell.cell_type == "code":
                found[cell["id"]] = time.perf_counter() - start
    return found


def report(clocks: Iterable[tuple[str, Clock]], *, markdown: bool = False) -> str:
    """The table, in minutes: a line for each lesson."""
    rows = [
        (name, *(f"{minutes:.1f}" for minutes in astuple(one)), f"{one.total:.0f}")
        for name, one in clocks
    ]
    names = ("lesson", *(field.name for field in fields(Clock)), "core")
    return grid(names, rows, (False, *[True] * (len(names) - 1)), markdown=markdown)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.course.clock", description=__doc__)
    parser.add_argument("lessons", type=Path, nargs="*", help="default: the folder notebooks")
    parser.add_argument("--run", action="store_true", help="measure the seconds of each cell")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args(arguments)
    clocks = []
    for path in options.lessons or sorted(Path("notebooks").glob("[0-9]*_*.ipynb")):
        notebook = read(path)
        if "core" in notebook["metadata"]["attnlab"]:
            clocks.append((path.stem, clock(notebook, measured(path) if options.run else None)))
    print(report(clocks, markdown=options.markdown))
    seconds = "measured" if options.run else "of the whole lesson, as its header states"
    print(
        f"minutes; prose {WORDS} words, code {LINES} lines a minute, {PICTURE} for a picture, "
        f"{WIDGET:g} for a widget, {GUESS:g} for a guess: estimates. runs: {seconds}."
    )
    return int(any(one.total > LONGEST for _, one in clocks))


if __name__ == "__main__":
    sys.exit(main())
