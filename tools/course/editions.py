"""Two editions of a lesson: for students without answers, for teachers with all of them."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from tools.course.lesson import (
    DETAILS,
    Cell,
    Exercise,
    Notebook,
    exercises,
    prediction,
    source,
    tags,
)

KEPT_FOLDED = {"Hint", "This figure in words"}


def student(notebook: Notebook) -> Notebook:
    """Without solutions, answers and stored outputs; hints stay folded.

    Predictions ask as they do in the lesson: what they show after the guess ships with attnlab.
    """
    cells: list[Cell] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cells.append(text(_without_answers(cell), tags(cell)))
        else:
            cells.append(code(source(cell), tags(cell)))
    return _notebook(notebook, cells)


def teacher(notebook: Notebook, mistakes: Callable[[Exercise], Sequence[str]]) -> Notebook:
    """With solutions and answers open; ``mistakes`` gives what the check of an exercise can say."""
    known = dict(exercises(notebook))
    cells: list[Cell] = []
    for place, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            opened = DETAILS.sub(_opened, source(cell))
            cells.append(text(opened, tags(cell)))
        else:
            cells.append(copy.deepcopy(dict(cell)))
        asked = prediction(cell)
        if asked is not None:
            told = f"**Answer.** {asked.answer}. {asked.why}\n\n{asked.after}"
            cells.append(text(told, ["teacher"]))
        if place in known:
            cells.append(text(_notes(known[place], mistakes(known[place])), ["teacher"]))
    return _notebook(notebook, cells, outputs=True)


def _without_answers(cell: Cell) -> str:
    def kept(found: Any) -> str:
        title = found[1]
        if title in KEPT_FOLDED:
            return str(found[0])
        return f"**{title}**\n\n" if title[:1].isdigit() or title.endswith("?") else ""

    return DETAILS.sub(kept, source(cell))


def _opened(found: Any) -> str:
    return f"**{found[1]}**\n\n{found[2]}\n\n"


def _notes(exercise: Exercise, mistakes: Sequence[str]) -> str:
    words = (
        f"**For the teacher.** {exercise.minutes} minutes, {exercise.points} of 3 in difficulty."
    )
    if not mistakes:
        return words
    listed = "\n".join(f"- {sentence}" for sentence in mistakes)
    return f"{words} Mistakes that the check knows by name:\n\n{listed}"


def text(words: str, tagged: Sequence[str] = (), **metadata: Any) -> Cell:
    return {
        "cell_type": "markdown",
        "metadata": ({"tags": list(tagged)} if tagged else {}) | metadata,
        "source": words.rstrip().splitlines(keepends=True),
    }


def code(lines: str, tagged: Sequence[str] = (), **metadata: Any) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": ({"tags": list(tagged)} if tagged else {}) | metadata,
        "outputs": [],
        "source": lines.rstrip().splitlines(keepends=True),
    }


def _notebook(notebook: Notebook, cells: Sequence[Cell], *, outputs: bool = False) -> Notebook:
    metadata = {k: v for k, v in notebook["metadata"].items() if outputs or k != "widgets"}
    written = [{k: v for k, v in cell.items() if k != "id"} for cell in cells]
    return {"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
