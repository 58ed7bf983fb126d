"""notebooks/README.md: every lesson with its question, the term, and what builds on what."""

import json
import re
from pathlib import Path

from tools.course.page import ASSUMED, current

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "notebooks/README.md").read_text(encoding="utf-8")
PLAN = json.loads((ROOT / "notebooks/course/plan.json").read_text(encoding="utf-8"))
LESSONS = {
    path: json.loads(path.read_text(encoding="utf-8"))["metadata"]["attnlab"]
    for path in sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))
}


def test_every_lesson_has_its_paragraph() -> None:
    flat = " ".join(PAGE.split())
    for path, facts in LESSONS.items():
        assert f"**[{facts['number']:02}]({path.name}) · {facts['question']}**" in flat


def test_the_tables_and_graphs_are_current() -> None:
    assert current(ROOT) == PAGE, "run `python -m tools.course.page`"


def test_the_graphs_are_those_of_the_headers() -> None:
    drawn = re.findall(r"^  (\d\d) --> (\d\d)$", PAGE, re.MULTILINE)
    wanted = [
        (before[:2], f"{facts['number']:02}")
        for facts in LESSONS.values()
        for before in facts["prerequisites"]
        if before[:2] not in ASSUMED
    ]
    assert sorted(drawn) == sorted(wanted)


def test_every_lesson_has_its_place_after_what_it_builds_on() -> None:
    before = {path.name[:2]: facts["prerequisites"] for path, facts in LESSONS.items()}
    term, *tracks = PLAN["tracks"].values()
    in_weeks = [one for week in PLAN["weeks"] for one in week["sessions"] if one.isdecimal()]
    assert list(dict.fromkeys(in_weeks)) == term
    assert sorted(one for track in (term, *tracks) for one in track if one in before) == [*before]
    for track in ([], *tracks):
        taught: list[str] = []
        for number in (*term, *track):
            assert {name[:2] for name in before.get(number, [])} <= set(taught), number
            taught.append(number)


def test_homework_is_set_after_its_lessons() -> None:
    taught: list[str] = []
    for week in PLAN["weeks"]:
        taught += week["sessions"]
        for number in re.findall(r"homework_(\d)\.md\) set", week.get("homework", "")):
            page = (ROOT / f"notebooks/course/homework_{number}.md").read_text(encoding="utf-8")
            after = re.search(r"^After lessons (.*?)\.", page, re.MULTILINE)
            assert after is not None
            for choice in re.split(r",| and ", after[1]):
                assert {*re.findall(r"\d\d", choice)} & {*taught} or not choice.strip(), choice


def test_every_lesson_has_questions_and_as_many_answers() -> None:
    for facts in LESSONS.values():
        counts = [
            len(re.findall(r"^\d+\. ", text.read_text(encoding="utf-8"), re.MULTILINE))
            for kind in ("questions", "answers")
            for text in [ROOT / f"notebooks/course/{kind}/{facts['number']:02}.md"]
        ]
        assert counts[0] == counts[1] >= 8, facts["question"]
