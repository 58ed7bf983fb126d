"""Questions made from tables: the round trip drops what was planted wrong, and only that."""

import re
from typing import Any

import pytest

from attnlab.structures.table import Table
from attnlab.tasks.facts import facts
from attnlab.tasks.question_pairs import Made, cells, is_true, made, precision

HTTP = facts("http")
TABLE = Table(HTTP.header, HTTP.rows[:11])
PHRASES = {name: ways[0] for name, ways in HTTP.phrases.items()}


def row_of(text: str) -> dict[str, str]:
    parts = text.split("context: ")[1].split(" * ")
    return dict(part.split(" : ", 1) for part in parts)


def ask(text: str, *, wrong: bool = False) -> str:
    """The first phrase for the column of the answer; a wrong one asks for another column."""
    answer = re.findall(r"answer: (.*) context:", text)[0]
    row = row_of(text)
    asked = next(name for name in HTTP.header if row[name] == answer)
    given = next(name for name in HTTP.names if name != asked)
    if wrong:
        asked = next(name for name in HTTP.header if name not in (asked, given))
    return PHRASES[asked].format(row[given])


def answer(text: str) -> str:
    """Reads the row by the phrase of the question."""
    question = re.findall(r"question: (.*) context:", text)[0]
    row = row_of(text)
    for name, phrase in PHRASES.items():
        for given in HTTP.names:
            if question == phrase.format(row[given]) and given != name:
                return row[name]
    return "i do not know"


def writer(texts: list[str]) -> list[str]:
    """Every third question is wrong."""
    return [ask(text, wrong=i % 3 == 0) for i, text in enumerate(texts)]


def reader(texts: list[str]) -> list[str]:
    return [answer(text) for text in texts]


def test_the_filter_keeps_what_is_true_and_drops_what_was_planted() -> None:
    chosen = cells(TABLE)
    assert len(chosen) == 33
    found = made(chosen, writer, reader)
    wrong = [pair for i, pair in enumerate(found.pairs) if i % 3 == 0]
    assert not any(pair in found.kept for pair in wrong)
    assert found.share_kept == pytest.approx(2 / 3)
    assert precision("http", found.pairs) == pytest.approx(2 / 3)
    assert precision("http", found.kept) == 1


def test_a_reader_that_knows_nothing_keeps_nothing() -> None:
    found = made(cells(TABLE), writer, lambda texts: ["i do not know"] * len(texts))
    assert found.kept == ()
    assert found.share_kept == 0
    with pytest.raises(ValueError, match="no pair is left, so there is no share"):
        precision("http", found.kept)


def test_a_mistake_that_both_models_share_passes_the_filter() -> None:
    """What the page says that the round trip cannot see."""

    def both(texts: list[str]) -> list[str]:
        return [re.findall(r"answer: (.*) context:", text)[0] for text in texts]

    found = made(
        cells(TABLE, ["phrase"]),
        both,
        lambda texts: [re.findall("question: (.*) context:", text)[0] for text in texts],
    )
    assert found.share_kept == 1
    assert precision("http", found.kept) == 0


def test_a_question_without_a_word_is_not_read() -> None:
    seen: list[int] = []

    def counted(texts: list[str]) -> list[str]:
        seen.append(len(texts))
        return reader(texts)

    found = made(cells(TABLE, ["code"]), lambda texts: ["", *writer(texts)[1:]], counted)
    assert seen == [10]
    assert found.pairs[0].read is None
    assert not found.pairs[0].returned


def test_truth_is_what_the_facts_say() -> None:
    assert is_true("http", "what does 404 mean", "not found")
    assert is_true("http", "what is the code of not found", "404")
    assert not is_true("http", "what does 404 mean", "ok")
    assert not is_true("http", "what is the code of 404", "404")  # it asks for what it names
    assert not is_true("http", "why does 404 mean so much", "not found")
    assert not is_true("http", "what does 999 mean", "not found")


def test_cells_without_words_are_no_answers() -> None:
    table = Table(["a", "b"], [["x", " "], ["", "y z"]])
    assert [(cell.row, cell.answer) for cell in cells(table)] == [(0, "x"), (1, "y z")]
    assert [cell.answer for cell in cells(table, ["b"])] == ["y z"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Table(["a"], []), "at least one column and one row, got 1 columns and 0 rows"),
        (lambda: cells([["a"]]), "table should be a Table, got a list"),  # type: ignore[arg-type]
        (lambda: cells(TABLE, ["year"]), "no column 'year'; its columns are code, phrase, kind"),
        (lambda: cells(Table(["a"], [[" "]])), "no cell of the chosen columns has a word in it"),
        (lambda: made([], writer, reader), "chosen should be a list of one cell at least"),
        (lambda: made(cells(TABLE), "t5", reader), "writer should be a function from texts"),  # type: ignore[arg-type]
        (
            lambda: made(cells(TABLE), writer, lambda texts: texts[1:]),
            "reader should write one text for each that it reads, got 32 for 33",
        ),
        (lambda: made(cells(TABLE), lambda t: [1] * len(t), reader), "is a text, got 1"),  # type: ignore[list-item]
        (lambda: is_true("weather", "what", "rain"), "weather"),
    ],
)
def test_bad_calls_get_a_sentence(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_the_share_is_of_all_cells() -> None:
    found = made(cells(TABLE), writer, reader)
    assert Made(found.pairs[:3]).share_kept == pytest.approx(2 / 3)
