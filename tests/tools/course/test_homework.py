"""The homework: its model answers run, and what they claim holds."""

import re
from pathlib import Path

import pytest

ANSWERS = sorted((Path(__file__).parents[3] / "notebooks/course/model_answers").glob("*.md"))


@pytest.mark.parametrize("page", ANSWERS, ids=lambda page: page.stem)
def test_the_model_answers_run(page: Path):
    told = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", told, re.DOTALL))
    assert len(code) > 1000
    exec(compile(code, str(page), "exec"), {"__name__": page.stem})


@pytest.mark.parametrize("page", ANSWERS, ids=lambda page: page.stem)
def test_each_part_of_the_homework_has_its_model_answer_and_its_marks(page: Path):
    homework = (page.parents[1] / page.name).read_text(encoding="utf-8")
    parts = re.findall(r"^(\d)\. \*\*(.*?)\*\* \((\d) points\)", homework, re.MULTILINE)
    answered = re.findall(r"^## (\d)\. (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert answered == [(number, title) for number, title, _ in parts]
    assert sum(int(points) for *_, points in parts) == 20
    assert re.findall(r"^\| (\d) \|", homework, re.MULTILINE) == [one[0] for one in parts]
