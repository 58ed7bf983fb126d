"""Tasks as texts and back: what is written is read back, and what is no answer is wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.tasks.text_tasks import Pipeline, Score, TextTask

COLA = TextTask(name="cola", fields=("sentence",), labels=("acceptable", "not acceptable"))
STSB = TextTask(name="stsb", fields=("first", "second"), numbers=(1, 5, 0.2))
TITLE = TextTask(name="title", fields=("text",))
ALL = Pipeline([COLA, STSB, TITLE])


def test_an_example_is_written_with_the_names_of_its_task_and_fields() -> None:
    pairs = ALL.pairs("stsb", [({"second": "a  dog", "first": "a cat"}, 2.31)])
    assert pairs == [("stsb first: a cat second: a dog", "2.4")]
    pairs = ALL.pairs("cola", [({"sentence": "the cat sat"}, "not acceptable")])
    assert pairs == [("cola sentence: the cat sat", "not acceptable")]


@given(st.floats(1, 5))
def test_a_number_comes_back_to_half_a_step(number: float) -> None:
    written = STSB.target(number)
    value = STSB.value(written)
    assert isinstance(value, float)
    assert abs(value - number) <= 0.1 + 1e-9
    assert STSB.target(value) == written


def test_a_number_has_as_many_decimals_as_its_step() -> None:
    task = TextTask(name="size", fields=("of",), numbers=(0, 12, 4))
    assert [task.target(x) for x in (0, 3, 7, 12)] == ["0", "4", "8", "12"]
    task = TextTask(name="share", fields=("of",), numbers=(0, 1, 0.25))
    assert [task.target(x) for x in (0, 0.3, 1)] == ["0.00", "0.25", "1.00"]


def test_what_is_no_answer_is_none() -> None:
    assert ALL.values("cola", ["acceptable", " not  acceptable ", "acceptible", ""]) == [
        "acceptable", "not acceptable", None, None,
    ]  # fmt: skip
    assert ALL.values("stsb", ["2.4", "2.4.1", "six", "9", "nan", "inf"]) == [2.4, *[None] * 5]
    assert ALL.values("title", ["Cats sit", "  "]) == ["Cats sit", None]


def test_no_answer_counts_as_wrong() -> None:
    written = ["acceptable", "acceptible", "not acceptable", "acceptable"]
    right = ["acceptable", "acceptable", "acceptable", "acceptable"]
    assert ALL.score("cola", written, right) == Score(right=0.5, no_answer=0.25)
    assert ALL.score("stsb", ["2.41", "4"], [2.4, 1]) == Score(right=0.5, no_answer=0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: COLA.target("good"), "'good' is not among the answers to 'cola': acceptable, not"),
        (lambda: STSB.target(6), "an answer to 'stsb' lies between 1 and 5, got 6"),
        (lambda: STSB.target("2"), "the answer should be a number, got '2'"),
        (lambda: TITLE.target("  "), "an answer to 'title' should have at least one word"),
        (lambda: COLA.source({}), "the task 'cola' reads sentence; the example has no 'sentence'"),
        (lambda: COLA.source({"sentences": "a"}), "field"),
        (lambda: COLA.source({"sentence": " "}), "the field 'sentence' should have at least one"),
        (lambda: COLA.source("a cat"), "an example is a dict of the fields sentence, got 'a cat'"),  # type: ignore[arg-type]
        (lambda: COLA.value(3), "what a model has written is a text, got 3"),  # type: ignore[arg-type]
        (lambda: ALL.task("colla"), "colla"),
        (lambda: Pipeline([COLA, COLA]), "each a name of its own, got .*'cola', 'cola'"),
        (lambda: Pipeline([]), "a pipeline has at least one task"),
        (lambda: Pipeline("cola"), "tasks should be a list of TextTask, got 'cola'"),  # type: ignore[arg-type]
        (lambda: ALL.score("cola", ["acceptable"], []), "got 1 texts and 0 answers"),
        (lambda: TextTask(name=" ", fields=("a",)), "the name of a task should have at least one"),
        (lambda: TextTask(name="a", fields=()), "reads nothing: name at least one field"),
        (lambda: TextTask(name="a", fields=("b", "b")), "fields should differ"),
        (lambda: TextTask(name="a", fields=("b",), labels=("c",)), "one of two or more labels"),
        (lambda: TextTask(name="a", fields=("b",), numbers=(5, 1, 1)), "the least, the largest"),
        (lambda: TextTask(name="a", fields=("b",), numbers=(1, 5, 0)), "the least, the largest"),
        (
            lambda: TextTask(name="a", fields=("b",), numbers=(0, 10, 4)),
            "steps of 4 from 0 do not end at 10; choose a largest number that they reach",
        ),
        (
            lambda: TextTask(name="a", fields=("b",), labels=("c", "d"), numbers=(1, 5, 1)),
            "answered by labels or by numbers, not by both",
        ),
    ],
)
def test_bad_calls_get_a_sentence(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
