"""The bank of questions: read from ``notebooks/course``, written as GIFT for a learning platform.

A question's level stands before its text (●●○), and each ● is a point. Half of them have a
multiple-choice form: a list below the answer, whose right choice is checked (``- [x]``).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ITEM = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", re.MULTILINE | re.DOTALL)
_CHOICE = re.compile(r"^ +- \[([ x])\] (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """One question of the bank. Without ``choices`` it is answered in words."""

    name: str
    level: str
    text: str
    answer: str
    choices: tuple[tuple[str, bool], ...]

    @property
    def points(self) -> int:
        return self.level.count("●")


def questions(bank: Path, lesson: str) -> Iterator[Question]:
    """The questions of a lesson, such as "05", with their answers."""
    told = dict(_items(bank / "answers" / f"{lesson}.md"))
    for number, asked in _items(bank / "questions" / f"{lesson}.md"):
        level, text = asked.split(maxsplit=1)
        answer = _CHOICE.split(told[number], maxsplit=1)[0]
        choices = tuple((words, mark == "x") for mark, words in _CHOICE.findall(told[number]))
        yield Question(f"{lesson}.{number}", level, _line(text), _line(answer), choices)


def _items(path: Path) -> list[tuple[str, str]]:
    return _ITEM.findall(path.read_text(encoding="utf-8"))


def _line(words: str) -> str:
    return " ".join(words.split())


def gift(title: str, asked: Iterable[Question]) -> str:
    """The questions of a lesson in Moodle's GIFT format; the answer is the feedback."""
    return "\n".join([f"$CATEGORY: attnlab/{title.replace('/', ' ')}\n", *map(_gift, asked)])


def _gift(asked: Question) -> str:
    points = f"{asked.points} point{'s' if asked.points > 1 else ''}"
    title = f"{asked.name} ({asked.level}, {points})"
    choices = [f"{'=' if right else '~'}{_escaped(words)}" for words, right in asked.choices]
    answers = "\n".join(["{", *choices, f"####{_escaped(asked.answer)}", "}"])
    return f"::{_escaped(title)}::[markdown]{_escaped(asked.text)} {answers}\n"


def _escaped(words: str) -> str:
    """GIFT gives a meaning to these characters unless a backslash stands before them."""
    return re.sub(r"([\\~=#{}:])", r"\\\1", words)


def text2qti(title: str, asked: Iterable[Question]) -> str:
    """A quiz in the plain text that the tool text2qti turns into QTI, for example for Canvas."""
    parts = [f"Quiz title: {title}"]
    for place, one in enumerate(asked, 1):
        head = f"Title: {one.name} {one.level}\nPoints: {one.points}\n{place}. {one.text}"
        choices = [
            f"{'*' if right else ''}{letter}) {words}"
            for letter, (words, right) in zip("abcdef", one.choices, strict=False)
        ]
        parts.append("\n".join([head, f"... {one.answer}", *(choices or ["____"])]))
    return "\n\n".join(parts) + "\n"
