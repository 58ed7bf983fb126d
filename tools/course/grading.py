"""The exercises of a lesson as assignments: for nbgrader and for otter-grader.

Both take one notebook with solutions, from which they make the students' notebook themselves. A
public test is the instant check of the lesson, as an assert whose message names the misconception.
A hidden test is the same check on other numbers and longer axes (`attempt.redrawn`). Experiments to
design are marked by a person.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnlab.core.home import home
from tools.course.apart import needs_a_process, value_apart
from tools.course.editions import code, text
from tools.course.lesson import Cell, Design, Exercise, Notebook, designs, exercises, imports

Hidden = Mapping[int, str]  # the hidden tests, by the numbers of the exercises

PRACTICE = (
    "The tests in this notebook are for practice: they are those of the lesson, whose solutions "
    "are public. Your work is graded by the same tests on other numbers and other sizes."
)
RUBRIC = (
    "One point each: what is changed, what stays equal and what is measured; seeds and spread, and "
    "a baseline; which result would prove the expectation wrong."
)
_ONLY_IN_THE_LESSON = re.compile(
    r"\s*<!-- lesson -->.*?<!-- /lesson -->"
    r"|Without (?:scrolling up|looking at the cell above)[:,] |,? without scrolling up",
    re.DOTALL,
)


def hidden_tests(notebook: Notebook, seed: int) -> Hidden:
    """A hidden test for each exercise whose check draws numbers. Its axes are twice as long where
    the solution of the lesson passes that, else as long as they are.
    """
    tests = (
        (exercise, _hidden_test(notebook, exercise, seed)) for _, exercise in exercises(notebook)
    )
    return {exercise.number: test for exercise, test in tests if test}


def _hidden_test(notebook: Notebook, exercise: Exercise, seed: int) -> str:
    *before, last = exercise.check.splitlines()
    call = ast.parse(last, mode="eval").body
    assert isinstance(call, ast.Call), exercise.check
    given = ", ".join(ast.unparse(one) for one in (*call.args, *call.keywords))
    for times in (2, 1):
        lines = [
            "from attnlab.exercises.attempt import Drawing, redrawn",
            f"drawing = Drawing(seed={seed}, times={times})",
            f"verdict = redrawn({ast.unparse(call.func)}, drawing)({given})",
        ]
        code = "\n".join([exercise.solution, *before, *lines])
        try:
            right = _passes(_imports(notebook), code, apart=needs_a_process(notebook))
        except (RuntimeError, ValueError, IndexError, AssertionError):
            continue  # the formulas of this check do not allow other sizes
        if right:
            return "\n".join([*lines, "assert verdict, verdict.message"])
    return ""


def _passes(before: str, code: str, *, apart: bool) -> bool:
    """Whether the verdict is right, and the check draws numbers."""
    if apart:
        return bool(value_apart(code, "bool(verdict and drawing.used)", before))
    known: dict[str, object] = {}
    exec(f"{before}\n{code}", known)
    return bool(known["verdict"] and known["drawing"].used)  # type: ignore[attr-defined]


def nbgrader(notebook: Notebook, hidden: Hidden) -> Notebook:
    """A notebook for the folder ``source`` of nbgrader; a point for each ● of the difficulty."""
    cells: list[Cell] = [text(_title(notebook)), code(_imports(notebook))]
    mark = {"schema_version": 3, "task": False}
    for _, exercise in exercises(notebook):
        name = f"exercise_{exercise.number}"
        test = _test(exercise)
        if exercise.number in hidden:
            between = f"### BEGIN HIDDEN TESTS\n{hidden[exercise.number]}\n### END HIDDEN TESTS"
            test = f"{test}\n{between}"
        answer = {"grade": False, "grade_id": name, "locked": False, "solution": True}
        graded = {"grade": True, "grade_id": f"{name}_test", "locked": True, "solution": False}
        cells += [
            text(_prompt(notebook, exercise)),
            code(_attempt(exercise, "###"), nbgrader=mark | answer),
            code(test, nbgrader=mark | graded | {"points": exercise.points}),
        ]
    for design in designs(notebook):
        name = f"exercise_{design.number}"
        marked = {"grade": True, "grade_id": name, "locked": False, "solution": True}
        answer = mark | marked | {"points": design.points}
        cells += [text(_prompt(notebook, design)), text(_model(design), nbgrader=answer)]
    return _assignment(notebook, cells)


def otter(notebook: Notebook, hidden: Hidden) -> Notebook:
    """A notebook for ``otter assign``."""
    slug = home(Path(__file__).parents[2]).slug
    cells: list[Cell] = [
        _raw(
            "# ASSIGNMENT CONFIG\ninit_cell: true\ngenerate: true\nrequirements:\n  - torch\n"
            f"  - attnlab @ git+https://github.com/{slug}"
        ),
        text(_title(notebook)),
        code(_imports(notebook)),
    ]
    for _, exercise in exercises(notebook):
        tests = [code(_test(exercise))]
        if exercise.number in hidden:
            tests.append(code(f"# HIDDEN\n{hidden[exercise.number]}"))
        cells += [
            _raw(f"# BEGIN QUESTION\nname: q{exercise.number}\npoints: {exercise.points}"),
            text(_prompt(notebook, exercise)),
            _raw("# BEGIN SOLUTION"),
            code(_attempt(exercise, "#")),
            _raw("# END SOLUTION"),
            _raw("# BEGIN TESTS"),
            *tests,
            _raw("# END TESTS"),
            _raw("# END QUESTION"),
        ]
    for design in designs(notebook):
        question = (
            f"# BEGIN QUESTION\nname: q{design.number}\npoints: {design.points}\nmanual: true"
        )
        cells += [
            _raw(question),
            text(_prompt(notebook, design)),
            _raw("# BEGIN SOLUTION"),
            text(_model(design)),
            _raw("# END SOLUTION"),
            _raw("# END QUESTION"),
        ]
    return _assignment(notebook, cells)


def _title(notebook: Notebook) -> str:
    facts = notebook["metadata"]["attnlab"]
    return f"# Lesson {facts['number']:02}: exercises\n\n{facts['question']}\n\n{PRACTICE}"


def _imports(notebook: Notebook) -> str:
    """PyTorch, and those imports of the lesson that its exercises use."""
    parts = [(one.stub, one.solution, one.check) for _, one in exercises(notebook)]
    words = set(re.findall(r"\w+", "\n".join("\n".join(part) for part in parts))) | {"torch", "F"}
    words |= {"os"} if needs_a_process(notebook) else set()
    kept = []
    for line in imports(notebook).splitlines():
        (statement,) = ast.parse(line).body
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            kept.append(line)  # what an import below needs in the environment
            continue
        bound = [one for one in statement.names if (one.asname or one.name).split(".")[0] in words]
        if bound:
            statement.names = bound
            kept.append(ast.unparse(statement))
    return "\n".join(kept)


def _prompt(notebook: Notebook, asked: Exercise | Design) -> str:
    """What is asked, without what needs the lesson around it; hints stay folded."""
    lesson = f"lesson {notebook['metadata']['attnlab']['number']:02}"
    words = _ONLY_IN_THE_LESSON.sub("", asked.prompt)
    parts = [words[:1].upper() + words[1:]]
    if isinstance(asked, Exercise):
        parts.append(f"Start from:\n\n```python\n{asked.stub}\n```")
    if asked.hint:
        parts.append(f"<details><summary>Hint</summary>\n\n{asked.hint}\n\n</details>")
    told = re.sub(r"\b[Tt]his lesson\b", lesson, "\n\n".join(parts))
    told = re.sub(r"(`\w+`) above\b", rf"\1 of {lesson}", told)
    return f"### {asked.number} · {asked.title} — {asked.level}, {asked.minutes} minutes\n\n{told}"


def _model(design: Design) -> str:
    return f"{design.example}\n\n**Marks.** {RUBRIC}"


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
