"""The core of a lesson: what a class does in 45 minutes, and the minutes that a lesson takes.

The core is written in the metadata of the notebook, ``"core": {"sections": [headings], "exercises":
[numbers]}``: from the first picture to the first training, and two exercises.

    python -m tools.course.core notebooks/12_….ipynb    minutes, and the sentence of the header

A reader takes a minute for 110 words or 8 lines of code.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tools.course.lesson import DETAILS, Cell, Notebook, exercises, is_attempt, read, source, tags

LONGEST = 45  # minutes
WORDS, LINES = 110, 8  # in a minute
_SPLIT = re.compile(r"^(?=#{2,3} )", re.MULTILINE)
_EXERCISE = re.compile(r"^### \d+ · .*? — [●○]{3}, (\d+) minutes\s*$", re.MULTILINE)
_HEADING = re.compile(r"^#{2,3} (.*)$", re.MULTILINE)


def read_minutes(notebook: Notebook) -> int:
    """Minutes to read a whole lesson, without its exercises and what is folded; full fives."""
    minutes = sum(minutes for _, minutes in _sections(notebook))
    return max(5, 5 * round(minutes / 5))


def work_minutes(notebook: Notebook) -> int:
    """Minutes that the exercises of a lesson take, as their headings say."""
    texts = [source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return sum(int(minutes) for minutes in _EXERCISE.findall("\n".join(texts)))


def core_minutes(notebook: Notebook) -> int:
    """Minutes of the core: its sections, read, and its exercises.

    Raises ValueError if a section or an exercise is not in the lesson.
    """
    core = notebook["metadata"]["attnlab"]["core"]
    named = [heading for heading, _ in _sections(notebook)]
    known = {exercise.number: exercise.minutes for _, exercise in exercises(notebook)}
    missing = [one for one in core["sections"] if one not in named]
    missing += [str(number) for number in core["exercises"] if number not in known]
    if missing:
        raise ValueError(f"no such section or exercise: {', '.join(missing)}; there are {named}")
    reading = sum(m for heading, m in _sections(notebook) if heading in core["sections"])
    return round(reading + sum(known[number] for number in core["exercises"]))


def sentence(notebook: Notebook) -> str:
    """What the header says of the core."""
    core = notebook["metadata"]["attnlab"]["core"]
    *first, last = [f"*{section}*" for section in core["sections"]]
    listed = f"{', '.join(first)} and {last}" if first else last
    numbers = " and ".join(str(number) for number in core["exercises"])
    return f"**Core, {core_minutes(notebook)} minutes:** {listed}; exercises {numbers}."


def parts(notebook: Notebook) -> Iterator[tuple[str, str | Cell]]:
    """What a lesson is read as: texts and code cells, each with the heading it stands below. The
    header, the set-up and the exercises are left out."""
    heading = ""
    for cell in notebook["cells"]:
        if {"header", "setup", "exercises"} & set(tags(cell)) or is_attempt(cell):
            continue
        for part in _SPLIT.split(source(cell)) if cell["cell_type"] == "markdown" else [cell]:
            found = _HEADING.match(part) if isinstance(part, str) else None
            heading = found[1] if found else heading
            yield heading, part


def _sections(notebook: Notebook) -> Iterator[tuple[str, float]]:
    """The headings of a lesson with the minutes of what stands between each and the next."""
    for heading, found in groupby(parts(notebook), key=lambda each: each[0]):
        yield heading, sum(_minutes(part) for _, part in found)


def _minutes(part: str | Cell) -> float:
    if isinstance(part, str):
        return len(DETAILS.sub("", part).split()) / WORDS
    hidden = part["metadata"].get("jupyter", {}).get("source_hidden")
    return 1.0 if hidden else len(source(part).splitlines()) / LINES


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.course.core", description=__doc__)
    parser.add_argument("lesson", type=Path, help="a notebook")
    notebook = read(parser.parse_args(arguments).lesson)
    print(f"minutes: {read_minutes(notebook)}, work_minutes: {work_minutes(notebook)}")
    for heading, minutes in _sections(notebook):
        print(f"  {minutes:4.1f}  {heading or '(before the first heading)'}")
    for _, exercise in exercises(notebook):
        print(f"  {exercise.minutes:4.1f}  exercise {exercise.number}: {exercise.title}")
    if "core" in notebook["metadata"]["attnlab"]:
        print(sentence(notebook))
    return 0


if __name__ == "__main__":
    sys.exit(main())
