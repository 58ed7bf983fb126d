"""notebooks/README.md: every lesson with its question, and the graph of what builds on what."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "notebooks/README.md").read_text(encoding="utf-8")
LESSONS = {
    path: json.loads(path.read_text(encoding="utf-8"))["metadata"]["attnlab"]
    for path in sorted((ROOT / "notebooks").glob("[0-9]*_*.ipynb"))
}


def test_every_lesson_has_its_paragraph() -> None:
    flat = " ".join(PAGE.split())
    for path, facts in LESSONS.items():
        assert f"**[{facts['number']:02}]({path.name}) · {facts['question']}**" in flat


def test_the_graph_is_that_of_the_headers() -> None:
    drawn = {(a, b) for a, b in re.findall(r"^  (\d\d) --> (\d\d)$", PAGE, re.MULTILINE)}
    wanted = {
        (before[:2], f"{facts['number']:02}")
        for facts in LESSONS.values()
        for before in facts["prerequisites"]
    }
    assert drawn == wanted


def test_every_lesson_has_questions_and_as_many_answers() -> None:
    for facts in LESSONS.values():
        counts = [
            len(re.findall(r"^\d+\. ", text.read_text(encoding="utf-8"), re.MULTILINE))
            for kind in ("questions", "answers")
            for text in [ROOT / f"notebooks/course/{kind}/{facts['number']:02}.md"]
        ]
        assert counts[0] == counts[1] >= 8, facts["question"]


def test_paths_name_lessons_that_exist() -> None:
    known = {f"{facts['number']:02}" for facts in LESSONS.values()}
    rows = re.findall(r"^\| \*\*.*?\| (\d+) \| ([\d, ]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 5
    for sessions, lessons in rows:
        named = lessons.replace(" ", "").split(",")
        assert set(named) <= known
        assert len(named) == int(sessions)
