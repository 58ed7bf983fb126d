"""``python -m tools.course FOLDER [--lessons NUMBER …]``: the lessons as a course."""

import argparse
import ast
import json
import secrets
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from attnlab.core.files import Delivery, Undelivered, add_options, deliver
from attnlab.exercises.answers import check_number, sentences_of
from tools.course.bank import gift, questions, text2qti
from tools.course.editions import student, teacher
from tools.course.grading import hidden_tests, nbgrader, otter
from tools.course.lesson import Exercise, Notebook, imports, read
from tools.course.links import linked, whole
from tools.course.summary import summary
from tools.readme import lessons

ROOT, PROGRAM = Path(__file__).parents[2], "python -m tools.course"
NOTEBOOKS = ROOT / "notebooks"
PAGES = ["README.md", "notation.md", "course/capstone.md", "course/homework_*.md"]
ONLY_FOR_TEACHERS = ["course/answers/*.md", "course/questions/*.md", "course/model_answers/*.md"]


def write(lesson: Path, folder: Path, seed: int, delivered: Collection[str]) -> None:
    """All that is made of one lesson. Links to files that are not ``delivered`` lead to the web."""
    notebook, name = linked(read(lesson), delivered), lesson.stem
    _save(folder / "student" / lesson.name, student(notebook))
    _save(folder / "teacher" / lesson.name, teacher(notebook, lambda e: mistakes(notebook, e)))
    alone = linked(notebook)
    hidden = hidden_tests(alone, seed)
    _save(folder / "nbgrader" / "source" / name / lesson.name, nbgrader(alone, hidden))
    _save(folder / "otter" / lesson.name, otter(alone, hidden))
    _page(folder / "summaries" / f"{name}.md", summary(alone))
    asked = list(questions(NOTEBOOKS / "course", name[:2]))
    title = f"{name[:2]} · {notebook['metadata']['attnlab']['question']}"
    _page(folder / "bank" / f"{name[:2]}.gift", gift(title, asked))
    _page(folder / "bank" / f"{name[:2]}.txt", text2qti(title, asked))


def mistakes(notebook: Notebook, exercise: Exercise) -> list[str]:
    """What the check of an exercise can say of a known mistake."""
    call = ast.parse(exercise.check.splitlines()[-1], mode="eval").body
    assert isinstance(call, ast.Call), exercise.check
    known: dict[str, Any] = {}
    lines = imports(notebook).splitlines()
    exec(
        "\n".join(line for line in lines if "triton" not in line.lower()), known
    )  # no check has it
    check = eval(ast.unparse(call.func), known)
    if check is check_number:
        listed = {one.arg: ast.unparse(one.value) for one in call.keywords}.get("mistakes", "{}")
        return list(sentences_of(eval(listed, known)))
    return list(check.sentences)


def _save(path: Path, notebook: Notebook) -> None:
    _page(path, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def _page(path: Path, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; made if it is missing")
    parser.add_argument("--lessons", type=int, nargs="+", metavar="NUMBER", help="default: all")
    parser.add_argument(
        "--seed", type=int, help="of the numbers of the hidden tests; default: drawn, a new secret"
    )
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
            seed = secrets.randbelow(2**31) if options.seed is None else options.seed
            make(Path(made), [ROOT / one.path for one in known if one.number in wanted], seed)
            print(deliver(delivery, options))
        except Undelivered as error:
            print(error, file=sys.stderr)
            return 2
    return 0


def make(folder: Path, chosen: Sequence[Path], seed: int) -> None:
    """The course of these lessons, in a new folder."""
    names = {lesson.name for lesson in chosen}
    for lesson in chosen:
        write(lesson, folder, seed, names | set(_pages(PAGES)))
    for edition, patterns in (("student", PAGES), ("teacher", PAGES + ONLY_FOR_TEACHERS)):
        pages = _pages(patterns)
        for page in pages:
            words = (NOTEBOOKS / page).read_text(encoding="utf-8")
            _page(folder / edition / page, whole(words, page, names | set(pages)))


def _pages(patterns: Sequence[str]) -> list[str]:
    found = (path for one in patterns for path in sorted(NOTEBOOKS.glob(one)))
    return [path.relative_to(NOTEBOOKS).as_posix() for path in found]


if __name__ == "__main__":
    sys.exit(main())
