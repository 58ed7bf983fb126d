"""``python -m attnlab.course FOLDER [--lessons NUMBER …]``: the lessons as a course."""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from attnlab.core.files import Delivery, Undelivered, add_options, deliver
from attnlab.course.editions import student, teacher
from attnlab.course.grading import nbgrader, otter
from attnlab.course.lesson import Exercise, Notebook, imports, read
from attnlab.course.summary import summary
from attnlab.exercises.attempt import mistakes_looked_for
from attnlab.readme import lessons

ROOT, PROGRAM = Path(__file__).parents[2], "python -m attnlab.course"


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
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; made if it is missing")
    parser.add_argument("--lessons", type=int, nargs="+", metavar="NUMBER", help="default: all")
    add_options(parser)
    options = parser.parse_args(arguments)
    known = lessons(ROOT)
    if not known:
        parser.error(f"there are no lessons in {ROOT}: run this in a clone of the repository")
    wanted = options.lessons or [lesson.number for lesson in known]
    unknown = sorted(set(wanted) - {lesson.number for lesson in known})
    if unknown:
        parser.error(f"no lesson has the number {', '.join(map(str, unknown))}")
    with tempfile.TemporaryDirectory() as made:
        delivery = Delivery(Path(made), options.folder, PROGRAM, overwrite=options.overwrite)
        try:
            delivery.check()
            make(Path(made), [ROOT / lesson.path for lesson in known if lesson.number in wanted])
            print(deliver(delivery, options))
        except Undelivered as error:
            print(error, file=sys.stderr)
            return 2
    return 0


def make(folder: Path, chosen: Sequence[Path]) -> None:
    """The course of these lessons, in a new folder."""
    for lesson in chosen:
        write(lesson, folder)
    for edition in ("student", "teacher"):  # the page that every lesson links
        shutil.copy(ROOT / "notebooks/notation.md", folder / edition)


if __name__ == "__main__":
    sys.exit(main())
