"""Tables of texts: what a row and a column read as, and what is refused."""

import pytest

from attnlab.structures.table import Table, TableQuestion

TABLE = Table(
    ["code", "phrase", "kind"],
    [["200", "ok", "good"], ["404", "not found", "bad"], ["410", "gone", "bad"]],
)


def test_rows_and_columns_as_texts() -> None:
    assert TABLE.row_text(1) == "code : 404 * phrase : not found * kind : bad"
    assert TABLE.column_text(1) == "phrase * ok * not found * gone"
    assert Table(("code", "phrase", "kind"), [list(row) for row in TABLE.rows]) == TABLE


def test_every_cell_with_an_answer_is_found() -> None:
    """The trap of labels by answer: a text may stand in several cells."""
    assert TABLE.cells_with("404") == [(1, 0)]
    assert TABLE.cells_with("bad") == [(1, 2), (2, 2)]
    with pytest.raises(ValueError, match="no cell of the table holds '405', so it answers no"):
        TABLE.cells_with("405")


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        (["a", "b"], [["1", "2"], ["3"]], "row 1 has 1 cells, but the header names 2 columns"),
        (["a"], [["1"], ["2", "3"]], "row 1 has 2 cells, but the header names 1 columns"),
        ([], [], "at least one column and one row, got 0 columns and 0 rows"),
        (["a"], [], "at least one column and one row, got 1 columns and 0 rows"),
        ([], [[]], "at least one column and one row, got 0 columns and 1 rows"),
        (["a", "a"], [["1", "2"]], "columns of a table have different names"),
    ],
)
def test_ragged_and_empty_tables_are_refused(header, rows, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Table(header, rows)


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        ("ab", [["1", "2"]], "the header of a table should be a list of strings, got 'ab'"),
        (["a", 3], [["1", "2"]], "the header of a table should be a list of strings"),
        (["a"], "1", "the rows of a table should be a list of rows, got '1'"),
        (["a"], 3, "the rows of a table should be a list of rows, got 3"),
        (["a"], [["1"], "2"], "row 1 of a table should be a list of strings, got '2'"),
        (["a"], [["1"], [None]], "row 1 of a table should be a list of strings"),
    ],
)
def test_what_is_no_table_is_refused(header, rows, sentence) -> None:
    with pytest.raises(TypeError, match=sentence):
        Table(header, rows)


def test_a_question_has_a_cell() -> None:
    assert TableQuestion(TABLE, "which phrase has 404", 1, 1).answer == "not found"
    for row, column in ((3, 0), (0, 3), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match=f"rows 0 … 2 and columns 0 … 2 .* got row {row}, "):
            TableQuestion(TABLE, "which phrase has 404", row, column)
