"""The bank of questions: what its pages hold, and what a learning platform would import."""

import re
from pathlib import Path

import pytest

from tools.course.bank import Question, gift, questions, text2qti

BANK = Path(__file__).parents[3] / "notebooks/course"
LESSONS = sorted(path.stem for path in (BANK / "questions").glob("*.md"))
ONE = Question("07.1", "●●○", "Is {1: 2} = a ~ b?", "No: #1.", (("yes", False), ("no", True)))


@pytest.mark.parametrize("lesson", LESSONS)
def test_questions_have_a_level_an_answer_and_half_of_them_choices(lesson: str):
    asked = list(questions(BANK, lesson))
    assert len(asked) >= 8
    assert [one.name for one in asked] == [f"{lesson}.{n + 1}" for n in range(len(asked))]
    assert all(one.level in ("●○○", "●●○", "●●●") and one.text and one.answer for one in asked)
    assert sum(bool(one.choices) for one in asked) >= len(asked) // 2


def read_gift(text: str) -> list[tuple[str, list[str], list[str]]]:
    """Title, right and wrong choices of each question, by the rules of Moodle."""
    found = []
    for title, body in re.findall(
        r"^::(.*?)(?<!\\)::.*?(?<!\\)\{(.*?)(?<!\\)\}", text, re.M | re.S
    ):
        answers = re.split(r"(?<!\\)####", body)[0]
        right, wrong = (re.findall(rf"^{mark}(.*)$", answers, re.MULTILINE) for mark in "=~")
        found.append((title, right, wrong))
    return found


def test_each_choice_question_has_one_right_answer_where_it_is_imported():
    for lesson in LESSONS:
        asked = list(questions(BANK, lesson))
        read = read_gift(gift(lesson, asked))
        assert len(read) == len(asked)
        for one, (title, right, wrong) in zip(asked, read, strict=True):
            assert title.startswith(one.name)
            if one.choices:
                assert (len(right), len(wrong)) == (1, len(one.choices) - 1), one.name
                assert len({*right, *wrong}) == len(one.choices), one.name
        quiz = text2qti(lesson, asked)
        assert len(re.findall(r"^\*[a-f]\) ", quiz, re.M)) + quiz.count("\n____\n") == len(asked)


def test_the_right_choice_is_not_known_by_its_length():
    told = [one.choices for lesson in LESSONS for one in questions(BANK, lesson) if one.choices]
    longest = [max(choices, key=lambda choice: len(choice[0]))[1] for choices in told]
    assert sum(longest) < len(told) / 2


def test_what_has_a_meaning_in_gift_is_escaped():
    assert gift("07", [ONE]) == (
        "$CATEGORY: attnlab/07\n\n"
        r"::07.1 (●●○, 2 points)::[markdown]Is \{1\: 2\} \= a \~ b? {"
        "\n~yes\n=no\n"
        r"####No\: \#1."
        "\n}\n"
    )
    assert text2qti("07", [ONE]) == (
        "Quiz title: 07\n\nTitle: 07.1 ●●○\nPoints: 2\n1. Is {1: 2} = a ~ b?\n"
        "... No: #1.\na) yes\n*b) no\n"
    )
