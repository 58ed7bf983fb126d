"""The exercises of a lesson as assignments: for nbgrader and for otter-grader.

Both take one notebook with solutions, from which they make the students' notebook themselves. The
instant check of the lesson is the test: an assert whose message names the misconception.
"""

from collections.abc import Sequence

from attnlab.course.editions import code, text
from attnlab.course.lesson import Cell, Exercise, Notebook, exercises, imports


def nbgrader(notebook: Notebook) -> Notebook:
    """A notebook for the folder ``source`` of nbgrader; a point for each ● of the difficulty."""
    cells: list[Cell] = [text(_title(notebook)), code(imports(notebook))]
    for _, exercise in exercises(notebook):
        name = f"exercise_{exercise.number}"
        mark = {"schema_version": 3, "task": False}
        cells += [
            text(_prompt(exercise)),
            code(
                _attempt(exercise, "###"),
                nbgrader=mark
                | {"grade": False, "grade_id": name, "locked": False, "solution": True},
            ),
            code(
                _test(exercise),
                nbgrader=mark
                | {"grade": True, "grade_id": f"{name}_test", "locked": True, "solution": False}
                | {"points": exercise.points},
            ),
        ]
    return _assignment(notebook, cells)


def otter(notebook: Notebook) -> Notebook:
    """A notebook for ``otter assign``."""
    cells: list[Cell] = [
        _raw("# ASSIGNMENT CONFIG\ninit_cell: true\ngenerate: true"),
        text(_title(notebook)),
        code(imports(notebook)),
    ]
    for _, exercise in exercises(notebook):
        question = f"# BEGIN QUESTION\nname: q{exercise.number}\npoints: {exercise.points}"
        cells += [
            _raw(question),
            text(_prompt(exercise)),
            _raw("# BEGIN SOLUTION"),
            code(_attempt(exercise, "#")),
            _raw("# END SOLUTION"),
            _raw("# BEGIN TESTS"),
            code(_test(exercise)),
            _raw("# END TESTS"),
            _raw("# END QUESTION"),
        ]
    return _assignment(notebook, cells)


def _title(notebook: Notebook) -> str:
    facts = notebook["metadata"]["attnlab"]
    return f"# Lesson {facts['number']:02}: exercises\n\n{facts['question']}"


def _prompt(exercise: Exercise) -> str:
    words = (
        f"### {exercise.number} · {exercise.title} — {exercise.level}, {exercise.minutes} minutes"
    )
    return f"{words}\n\n{exercise.prompt}\n\nStart from:\n\n```python\n{exercise.stub}\n```"


def _attempt(exercise: Exercise, mark: str) -> str:
    """The cell of the solution. It first removes the names that the exercise asks for: a lesson may
    import a function of that name, or an earlier exercise define one, and neither earns points.
    """
    removed = "\n".join(f"globals().pop({name!r}, None)" for name in exercise.names)
    return (
        f"# Only what is defined below is graded.\n{removed}\n"
        f"{mark} BEGIN SOLUTION\n{exercise.solution}\n{mark} END SOLUTION"
    )


def _test(exercise: Exercise) -> str:
    *before, last = exercise.check.splitlines()
    return "\n".join([*before, f"verdict = {last}", "assert verdict, verdict.message"])


def _raw(words: str) -> Cell:
    return {"cell_type": "raw", "metadata": {}, "source": words.splitlines(keepends=True)}


def _assignment(notebook: Notebook, cells: Sequence[Cell]) -> Notebook:
    kernel = {k: v for k, v in notebook["metadata"].items() if k in ("kernelspec", "language_info")}
    return {"cells": list(cells), "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
