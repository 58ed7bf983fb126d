"""The lessons as a course: what each edition holds, and what it leaves out."""

import dataclasses
import json
import os.path
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attnlab.exercises import fourier
from attnlab.predictions import prediction as by_key
from tools.course.__main__ import ONLY_FOR_TEACHERS, PAGES, _pages, main, mistakes
from tools.course.apart import value_apart
from tools.course.editions import student, teacher
from tools.course.grading import hidden_tests, nbgrader, otter
from tools.course.lesson import exercises, prediction, read, source
from tools.course.links import linked, whole
from tools.course.summary import summary

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
LESSONS = sorted(NOTEBOOKS.glob("[0-9]*_*.ipynb"))
LESSON = {
    "cells": [
        {
            "cell_type": "markdown",
            "metadata": {"tags": ["header"]},
            "source": "# 07 · Why?\n\nYou will be able to\n\n- **count**.",
        },
        {
            "cell_type": "code",
            "metadata": {"tags": ["predict"]},
            "execution_count": 1,
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "a stored answer"}],
            "source": 'def look():\n    return 7\n\n\npredict("12.1", look)',
        },
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": "### 1 · A number — ●●○, 10 minutes\n\nCount the days.",
        },
        {
            "cell_type": "code",
            "metadata": {"tags": ["exercise"]},
            "execution_count": 2,
            "outputs": [],
            "source": "days = ...\n\n\ncheck_number(days, 7, mistakes={5: 'The weekend counts.'})",
        },
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": "<details><summary>Hint</summary>\n\nSunday.\n\n</details>\n\n"
            "<details><summary>Solution</summary>\n\n```python\ndays = 6 + 1\n```\n\n</details>\n",
        },
        {
            "cell_type": "code",
            "metadata": {"tags": ["setup"]},
            "execution_count": 3,
            "outputs": [],
            "source": "import math\nfrom attnlab.exercises import check_number\n\nmath.pi",
        },
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": "### 2 · Design an experiment — ●●●, 20 minutes\n\nWhich day is best? "
            "<!-- lesson -->See above.<!-- /lesson -->\n\n"
            "<details><summary>Example of a good answer</summary>\n\nAll seven.\n\n</details>\n",
        },
        {
            "cell_type": "markdown",
            "metadata": {"tags": ["recap"]},
            "source": "## Recap\n\n<details><summary>1. Why seven?</summary>\n\n"
            "Nobody knows.\n\n</details>\n",
        },
    ],
    "metadata": {"attnlab": {"number": 7, "question": "Why?"}, "widgets": {"state": "large"}},
}


def words(notebook: Any) -> str:
    return "\n".join(source(cell) for cell in notebook["cells"])


def test_exercises_and_predictions_are_read():
    ((place, exercise),) = exercises(LESSON)
    assert place == 3
    assert (exercise.number, exercise.title, exercise.level) == (1, "A number", "●●○")
    assert (exercise.minutes, exercise.points) == (10, 2)
    assert exercise.prompt == "Count the days."
    assert (exercise.stub, exercise.solution) == ("days = ...", "days = 6 + 1")
    assert exercise.check == "check_number(days, 7, mistakes={5: 'The weekend counts.'})"
    assert exercise.hint == "Sunday."
    assert prediction(LESSON["cells"][1]) == by_key("12.1")
    assert prediction(LESSON["cells"][3]) is None


def test_the_students_edition_has_no_answers():
    made = student(LESSON)
    found = words(made)
    for hidden in ("6 + 1", by_key("12.1").why, "Nobody knows", "stored answer"):
        assert hidden not in json.dumps(made)
    for kept in ('predict("12.1", look)', "Sunday.", "days = ...", "1. Why seven?"):
        assert kept in found
    assert not any(cell.get("outputs") for cell in made["cells"])
    assert "widgets" not in made["metadata"]


def test_the_teachers_edition_has_them_open():
    made = teacher(LESSON, lambda exercise: mistakes(LESSON, exercise))
    found = words(made)
    assert "<details>" not in found
    for shown in (
        "**Solution**",
        "6 + 1",
        f"**Answer.** {by_key('12.1').answer}. ",
        "Nobody knows",
    ):
        assert shown in found
    assert "- 5: The weekend counts." in found
    assert "10 minutes, 2 of 3" in found
    assert made["metadata"]["widgets"] == {"state": "large"}


def test_what_a_check_can_say_is_read_without_running_the_solution():
    ((_, exercise),) = exercises(LESSON)
    never = dataclasses.replace(
        exercise, solution="raise AssertionError", check="fourier.check_hartley(hartley)"
    )
    setup = {"cell_type": "code", "metadata": {}, "source": "from attnlab.exercises import fourier"}
    said = mistakes({"cells": [setup]}, never)
    assert said == list(fourier.check_hartley.sentences)
    assert "It is not divided by √(n · dim)." in said


def test_assignments_test_the_solution_with_an_assert():
    hidden = {1: "assert days != 7.0000001"}
    for made in (nbgrader(LESSON, hidden), otter(LESSON, hidden)):
        codes = [source(cell) for cell in made["cells"] if cell["cell_type"] == "code"]
        assert codes[0] == "from attnlab.exercises import check_number"
        runnable = "\n".join(codes)
        exec(runnable, {})
        with pytest.raises(AssertionError, match="the weekend counts"):
            exec(runnable.replace("days = 6 + 1", "days = 5"), {})
        with pytest.raises(AssertionError):
            exec(runnable.replace("days = 6 + 1", "days = 7.0000001"), {})
        told = words(made)
        assert "Sunday." in told
        assert "See above" not in told
    graded = [c["metadata"]["nbgrader"] for c in nbgrader(LESSON, hidden)["cells"] if c["metadata"]]
    marks = [(cell["grade"], cell["solution"], cell.get("points")) for cell in graded]
    assert marks == [(False, True, None), (True, False, 2), (True, True, 3)]
    raw = [source(c) for c in otter(LESSON, hidden)["cells"] if c["cell_type"] == "raw"]
    assert "requirements:\n  - torch\n  - attnlab @" in raw[0]
    assert raw[1] == "# BEGIN QUESTION\nname: q1\npoints: 2"
    assert raw[7] == "# BEGIN QUESTION\nname: q2\npoints: 3\nmanual: true"
    assert len(raw) == 1 + 6 + 4
    assert "All seven." in words(otter(LESSON, hidden))


def test_what_knows_the_public_check_by_heart_fails_the_hidden_test():
    notebook = read(NOTEBOOKS / "01_scaled_dot_product.ipynb")
    hidden = hidden_tests(notebook, 4711)
    assert "times=2" in hidden[2]
    solution = next(one.solution for _, one in exercises(notebook) if one.number == 2)
    by_heart = solution.replace("):\n", "):\n    assert len(q) < 8\n", 1)
    for attempt, passes in ((solution, True), (by_heart, False)):
        known: dict[str, Any] = {}
        exec(f"import torch\nfrom attnlab import exercises\n{attempt}", known)
        assert known["exercises"].check_causal(known["causal_attention"])
        if passes:
            exec(hidden[2], known)
        else:
            with pytest.raises(AssertionError):
                exec(hidden[2], known)


def earned(made: Any, release: str) -> int:
    """How many tests of an assignment pass, with ``release`` in place of each solution; without one
    solutions stay."""
    cells = [source(cell) for cell in made["cells"] if cell["cell_type"] == "code"]
    if release:
        solution = r"#+ BEGIN SOLUTION.*?# END SOLUTION"
        cells = [re.sub(solution, release, lines, flags=re.DOTALL) for lines in cells]
    imports, *others = cells
    if "os.environ[" in imports:
        code = "_passed = 0\n" + "\n".join(map(attempted, others))
        return int(value_apart(code, "_passed", imports))
    namespace: dict[str, Any] = {}
    passed = 0
    for lines in cells:
        try:
            exec(lines, namespace)
        except (AssertionError, NameError, NotImplementedError):
            continue
        passed += "assert verdict" in lines
    return passed


def attempted(lines: str) -> str:
    """A cell that may fail, as ``earned`` runs it."""
    counted = f"{lines}\n_passed += {'assert verdict' in lines:d}"
    errors = "(AssertionError, NameError, NotImplementedError)"
    return f"try:\n{textwrap.indent(counted, '    ')}\nexcept {errors}:\n    pass"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_an_assignment_handed_in_unchanged_earns_nothing(path: Path):
    notebook = read(path)
    hidden = hidden_tests(notebook, 4711)
    assert earned(nbgrader(notebook, hidden), "raise NotImplementedError()") == 0
    assert earned(otter(notebook, hidden), "...") == 0
    assert earned(nbgrader(notebook, hidden), "") == len(list(exercises(notebook)))


ASKS_FOR_THE_LESSON = r"figure above|cell above|`\w+` above|scroll|this lesson|head of the shipped"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_prompts_stand_alone(path: Path):
    prompts = [source(one) for one in nbgrader(read(path), {})["cells"] if not one["metadata"]]
    assert re.findall(rf".*(?:{ASKS_FOR_THE_LESSON}).*", "\n".join(prompts)) == []


LINK = re.compile(r"\]\((?!#)([^)\s#]+)")
HOME = "https://github.com/attnlab/attnlab/blob/main/"


def texts(notebook: Any) -> str:
    return "\n".join(source(one) for one in notebook["cells"] if one["cell_type"] == "markdown")


def dead_links(told: str, page: str, delivered: set[str]) -> list[str]:
    """Links to files that are neither delivered nor, by a web address, in the repository."""
    dead = []
    for link in LINK.findall(re.sub(r"(?s)```.*?```|`[^`\n]*`", "", told)):
        here = os.path.normpath(os.path.join(os.path.dirname(page), link))
        if link.startswith(HOME):
            found = (NOTEBOOKS.parent / link.removeprefix(HOME)).exists()
        else:
            found = re.match("[a-z]+:", link) is not None or here in delivered
        dead += [] if found else [link]
    return dead


@cache
def texts_of(path: Path) -> tuple[list[str], str]:
    """What both editions of a lesson say; and what goes out alone, its assignment and summary."""
    notebook = linked(read(path), {path.name for path in LESSONS} | set(_pages(PAGES)))
    editions = [student(notebook), teacher(notebook, lambda exercise: [])]
    alone = texts(nbgrader(linked(read(path)), {})) + summary(linked(read(path)))
    return [texts(made) for made in editions], alone


@pytest.mark.parametrize("patterns", [PAGES, PAGES + ONLY_FOR_TEACHERS], ids=["student", "teacher"])
def test_no_link_of_an_edition_is_broken(patterns: list[str]):
    delivered = {path.name for path in LESSONS} | set(_pages(patterns))
    for path in LESSONS:
        editions, alone = texts_of(path)
        for told in editions:
            assert dead_links(told, path.name, delivered) == [], path.stem
        assert dead_links(alone, path.name, set()) == [], path.stem
    for page in _pages(patterns):
        told = whole((NOTEBOOKS / page).read_text(encoding="utf-8"), page, delivered)
        assert dead_links(told, page, delivered) == [], page


def test_a_summary_is_one_page_of_the_lessons_own_sentences():
    page = summary(LESSON)
    assert page.startswith("# 07 · Why?\n\nYou will be able to\n\n- **count**.")
    assert page.endswith("**1. Why seven?** Nobody knows.\n")


def test_what_a_lesson_lacks_is_named():
    bare = json.loads(json.dumps(LESSON))
    bare["cells"][4]["source"] = "nothing folded"
    with pytest.raises(ValueError, match="cell 3: no folded solution follows"):
        list(exercises(bare))
    bare["cells"][2]["source"] = "### Exercise 1"
    with pytest.raises(ValueError, match="cell 3: no heading such as"):
        list(exercises(bare))


def test_every_lesson_can_be_read():
    for path in LESSONS:
        notebook = read(path)
        assert list(exercises(notebook)), path.stem
        made = words(student(notebook))
        assert "<summary>Solution" not in made
        assert len(summary(notebook)) > 1000, path.stem


def test_the_command_writes_all_of_a_lesson(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path), "--lessons", "61"]) == 0
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    name = "61_how_heads_are_born"
    pages = [one for one in written if one.endswith(".md") and "summaries" not in one]
    assert [one for one in written if one not in pages] == [
        ".attnlab.json",
        "bank/61.gift",
        "bank/61.txt",
        f"nbgrader/source/{name}/{name}.ipynb",
        f"otter/{name}.ipynb",
        f"student/{name}.ipynb",
        f"summaries/{name}.md",
        f"teacher/{name}.ipynb",
    ]
    for page in ("student/notation.md", "student/course/homework_1.md", "teacher/README.md"):
        assert page in pages
    only_for_teachers = ("answers", "questions", "model_answers")
    for one in pages:
        assert one.startswith("teacher/") or not any(
            f"/{kind}/" in one for kind in only_for_teachers
        )
    told = (tmp_path / "teacher" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert "Rows and columns are exchanged" in told
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--lessons", "97"])
    assert "no lesson has the number 97" in capsys.readouterr().err
