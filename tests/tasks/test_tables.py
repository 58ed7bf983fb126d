"""Questions about tables: each has one right cell, and every pair is labelled by it."""

import pytest
import torch

from attnlab.tasks.facts import facts, facts_of_split
from attnlab.tasks.tables import Tables

ALL = ("http", "exceptions", "keywords", "characters", "zones")


def words(task: Tables, row: torch.Tensor, padding: torch.Tensor) -> str:
    return " ".join(task.tokens(row[padding]))


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("subject", ALL)
def test_the_answer_is_the_cell_of_the_named_row(subject: str, split: str) -> None:
    own, rows = facts(subject), set(facts_of_split(subject, split))
    asked = {phrase: name for name, ways in own.phrases.items() for phrase in ways}
    for each in Tables(subjects=(subject,)).questions(split, 40, seed=1):
        table = each.table
        assert sorted(table.header) == sorted(own.header)
        order = [table.header.index(name) for name in own.header]
        assert {tuple(row[i] for i in order) for row in table.rows} <= rows
        assert len(set(table.rows)) == 5
        fitting = []
        for phrase, column in asked.items():
            for name in own.names:
                for row in table.rows:
                    value = row[table.header.index(name)]
                    if name != column and phrase.format(value) == each.question:
                        fitting.append(row[table.header.index(column)])
        assert fitting == [each.answer]


def test_the_largest_is_larger_than_all_others() -> None:
    for each in Tables(ask="largest").questions("train", 60, seed=2):
        *_, size = each.question.split()
        place = each.table.header.index(size)
        values = [int(row[place], 16) for row in each.table.rows]
        assert values[each.row] > max(v for i, v in enumerate(values) if i != each.row)
        assert each.question.split()[1] == each.table.header[each.column] != size


@pytest.mark.parametrize("of", ["rows", "columns"])
def test_pairs_are_all_texts_of_a_table_with_the_question(of: str) -> None:
    task = Tables(of=of, rows=3)
    (each,) = task.questions("validation", 1, seed=3)
    batch, table = task.pairs(each), each.table
    count = 3 if of == "rows" else len(table.header)
    assert len(batch) == count
    right = each.row if of == "rows" else each.column
    assert batch.targets.tolist() == [int(i == right) for i in range(count)]
    for i in range(count):
        text = table.row_text(i) if of == "rows" else table.column_text(i)
        found = words(task, batch.inputs[i], batch.padding[i])
        assert found == f"[cls] {each.question} [sep] {text} [sep]"
        own = words(task, batch.inputs[i], batch.structure.in_text[i])
        assert own == f"{text} [sep]"
    assert torch.equal(batch.padding, batch.structure.padding)


def test_consecutive_rows_of_a_batch_are_one_table() -> None:
    batch = Tables(rows=3).batch("train", 30, seed=5)
    assert batch.targets.view(10, 3).sum(1).tolist() == [1] * 10


def test_nothing_is_longer_than_it_may_be() -> None:
    for task in (Tables(subjects=ALL), Tables(of="columns", rows=7)):
        longest = max(task.batch("train", 400, seed).inputs.shape[1] for seed in range(3))
        assert task.length - 6 <= longest <= task.length


def test_every_word_of_every_fact_is_known() -> None:
    task = Tables(subjects=ALL)
    assert task.tokens(task.encode("st johns +5:30 404")) == ["st", "johns", "+5:30", "404"]
    assert len(task.encode("")) == 0
    assert len({*task.tokens(range(task.vocab))}) == task.vocab
    with pytest.raises(ValueError, match="no fact or question of this task has the word 'nowhere'"):
        task.encode("where is nowhere")
    with pytest.raises(TypeError, match="encode takes a str, got a list"):
        task.encode(["where"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"of": "row"}, "there is no text 'row'; did you mean 'rows'"),
        ({"ask": "smallest"}, "there is no question 'smallest'"),
        ({"subjects": ("htp",)}, "there is no subject 'htp'; did you mean 'http'"),
        ({"subjects": ()}, "subjects should name one subject or more, each once"),
        ({"subjects": ("http", "http")}, "subjects should name one subject or more, each once"),
        ({"rows": 1}, "rows should be at least 2, got 1"),
        (
            {"rows": 12},
            "about keywords has at most 11 rows, as many as .*, got rows=12",
        ),
        ({"ask": "largest", "of": "columns"}, "ask='largest' is for of='rows'"),
        ({"ask": "largest", "subjects": ("zones",)}, "about zones have no column of numbers"),
    ],
)
def test_options_that_make_no_tables_are_refused(options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Tables(**options)
