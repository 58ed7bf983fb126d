"""``python -m attnlab.course FOLDER [--lessons NUMBER …]``: the lessons as a course."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.course.editions import student, teacher
from attnlab.course.grading import nbgrader, otter
from attnlab.course.lesson import Exercise, Notebook, imports, read
from attnlab.course.summary import summary
from attnlab.exercises.attempt import mistakes_looked_for
from attnlab.readme import lessons

ROOT = Path(__file__).parents[2]


def write(lesson: Path, folder: Path) -> None:
    """All that is made of one lesson."""
    notebook, name = read(lesson), lesson.stem
    _save(folder / "student" / lesson.name, student(notebook))
    _save(folder / "teacher" / lesson.name, teacher(notebook, lambda e: mistakes(notebook, e)))
    _save(folder / "nbgrader" / "source" / name / lesson.name, nbgrader(notebook))
    _save(folder / "otter" / lesson.name, otter(notebook))
    page = folder / "summaries" / f"{name}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(summary(notebook), encoding="utf-8")


def mistakes(notebook: Notebook, exercise: Exercise) -> list[str]:
    """What the check of an exercise can say of a wrong answer: it is run with the solution."""
    with mistakes_looked_for() as sentences:
        exec(f"{imports(notebook)}\n{exercise.solution}\n{exercise.check}", {})
    return sentences


def _save(path: Path, notebook: Notebook) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m attnlab.course", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; made if it is missing")
    parser.add_argument("--lessons", type=int, nargs="+", metavar="NUMBER", help="default: all")
    options = parser.parse_args(arguments)
    known = lessons(ROOT)
    wanted = options.lessons or [lesson.number for lesson in known]
    unknown = sorted(set(wanted) - {lesson.number for lesson in known})
    if unknown:
        parser.error(f"no lesson has the number {', '.join(map(str, unknown))}")
    for lesson in known:
        if lesson.number in wanted:
            write(ROOT / lesson.path, options.folder)
    for edition in ("student", "teacher"):  # the page that every lesson links
        shutil.copy(ROOT / "notebooks/notation.md", options.folder / edition)
    return 0


if __name__ == "__main__":
    sys.exit(main())
