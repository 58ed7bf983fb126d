"""The tables and graphs of notebooks/README.md: ``python -m tools.course.page``.

What a person decides (which lesson in which week, which track, the finding of each lesson) stands
in ``notebooks/course/plan.json``. Minutes, prerequisites, exercises and questions come from the
notebooks and the bank.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.core.files import write_file
from attnlab.core.home import Home, home
from tools.course.bank import questions
from tools.course.core import core_minutes
from tools.course.lesson import designs, exercises, read
from tools.readme import filled

_ABOUT = """Without arguments: write the tables and graphs of notebooks/README.md anew, in this
clone of the repository. All that stands outside of their markers stays."""
ROOT = Path(__file__).parents[2]
ASSUMED = ("00", "01", "02")  # what nearly every lesson builds on; not drawn in the graphs
Row = Sequence[str]


class Facts(NamedTuple):
    """What the page says of one lesson."""

    file: str
    facts: Mapping[str, Any]
    core: str  # its minutes, once they are marked
    exercises: tuple[int, ...]
    quiz: tuple[int, ...]  # the questions of the bank that have choices

    @property
    def title(self) -> str:
        number, *words = Path(self.file).stem.split("_")
        return f"{number} {' '.join(words)}"

    @property
    def before(self) -> list[str]:
        return [name[:2] for name in self.facts["prerequisites"]]

    @property
    def in_class(self) -> list[int]:
        """The two exercises of the core."""
        found: list[int] = self.facts.get("core", {}).get("exercises", list(self.exercises[:2]))
        return found

    @property
    def at_home(self) -> list[int]:
        return [number for number in self.exercises if number not in self.in_class]


def lessons(root: Path) -> dict[str, Facts]:
    """By their numbers, such as "05"."""
    found = {}
    for path in sorted((root / "notebooks").glob("[0-9]*_*.ipynb")):
        notebook, number = read(path), path.name[:2]
        asked = questions(root / "notebooks/course", number)
        quiz = tuple(int(one.name.split(".")[1]) for one in asked if one.choices)
        facts = notebook["metadata"]["attnlab"]
        core = str(core_minutes(notebook)) if "core" in facts else ""
        numbers = [one.number for _, one in exercises(notebook)]
        numbers += [one.number for one in designs(notebook)]
        found[number] = Facts(path.name, facts, core, tuple(numbers), quiz)
    return found


def tables(root: Path) -> dict[str, str]:
    """What stands between the markers of the page."""
    plan = json.loads((root / "notebooks/course/plan.json").read_text(encoding="utf-8"))
    known = lessons(root)
    made = {"term": _term(plan["weeks"], known), "lessons": _glance(plan, known, home(root))}
    for track, numbers in plan["tracks"].items():
        made[f"graph of {track}"] = _graph([one for one in numbers if one in known], known)
    return made


def _term(weeks: Iterable[Mapping[str, Any]], known: Mapping[str, Facts]) -> str:
    head = ("Week", "Session 1", "Session 2", "Read before", "Exercises in class", "At home")
    rows = [
        _week(
            str(place),
            week,
            [one for one in dict.fromkeys(week["sessions"]) if one in known],
            known,
        )
        for place, week in enumerate(weeks, 1)
    ]
    return _table((*head, "Questions", "Homework"), rows)


def _week(
    place: str, week: Mapping[str, Any], read_in_it: Sequence[str], known: Mapping[str, Facts]
) -> Row:
    sessions = [f"[{one}]({known[one].file})" if one in known else one for one in week["sessions"]]
    lessons_read = {one: known[one] for one in read_in_it}
    minutes = "; ".join(
        f"{one}: {facts.facts['minutes']} min" for one, facts in lessons_read.items()
    )
    lists = [
        "; ".join(f"{one}: {_listed(numbers)}" for one, numbers in column.items() if numbers)
        for column in (
            {one: facts.in_class for one, facts in lessons_read.items()},
            {one: facts.at_home for one, facts in lessons_read.items()},
            {one: facts.quiz for one, facts in lessons_read.items()},
        )
    ]
    return (place, *sessions, minutes, *lists, week.get("homework", ""))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _glance(plan: Mapping[str, Any], known: Mapping[str, Facts], place: Home) -> str:
    rows = [
        (
            f"[{number} · {one.facts['question']}]({one.file})",
            f"{place.colab(f'notebooks/{one.file}')} {place.binder(f'notebooks/{one.file}')}",
            one.core,
            f"{one.facts['minutes']} + {one.facts['work_minutes']}",
            ", ".join(one.before) or "–",
            plan["findings"][number],
        )
        for number, one in known.items()
    ]
    head = ("Lesson", "Run it now", "Core", "Read + work", "Builds on", "What it finds")
    return _table(head, rows)


def _graph(numbers: Sequence[str], known: Mapping[str, Facts]) -> str:
    """What these lessons build on beside the first three, as a drawing in Mermaid."""
    arrows = [(old, new) for new in numbers for old in known[new].before if old not in ASSUMED]
    shown = sorted({one for arrow in arrows for one in arrow})
    boxes = [f'  {one}["{known[one].title}"]' for one in shown]
    lines = [f"  {old} --> {new}" for old, new in arrows]
    return "\n".join(["```mermaid", "graph LR", *boxes, *lines, "```"])


def _table(head: Row, rows: Iterable[Row]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def current(root: Path) -> str:
    """The page with its tables as they are now."""
    text = (root / "notebooks/README.md").read_text(encoding="utf-8")
    return filled(text, tables(root))


def main() -> None:
    ArgumentParser(prog="python -m tools.course.page", description=_ABOUT).parse_args()
    write_file(ROOT / "notebooks/README.md", current(ROOT))


if __name__ == "__main__":
    main()
