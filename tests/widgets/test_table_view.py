"""TableView: the score of a cell is the sum of two; the sentence says which of the two is wrong."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.table_view import TableView
from attnlab_widgets.table_view.example import example as table

from attnlab.mechanisms.structure.rci import cell_scores
from attnlab.structures.table import Table, TableQuestion
from tests.widgets.stored import assert_fresh, write

SMALL = Table(["name", "year"], [["a", "1"], ["b", "2"], ["c", "3"]])
ASKED = TableQuestion(SMALL, "When was b?", 1, 1)
SIDE, TOP = [0.0, 2.0, 1.0], [-1.0, 0.5]


def widgets() -> list[TableView]:
    rng = np.random.default_rng(20)
    large = Table([*"vwxyz"], [[f"{row}.{column}" for column in range(5)] for row in range(7)])
    asked = [TableQuestion(large, f"{at}?", *cell) for at, cell in enumerate([(0, 0), (6, 4)])]
    many = [*asked, (large, "Which?"), (SMALL, "And here?")]
    sides, tops = ([rng.normal(size=n) for n in sizes] for sizes in ([7, 7, 7, 3], [5, 5, 5, 2]))
    ties = TableQuestion(SMALL, "Which?", 2, 1)
    return [
        table(), TableView(many, sides, tops),
        TableView([ASKED, ties], [SIDE, [1.0] * 3], [TOP, [0.25] * 2]),
    ]  # fmt: skip


def case(one: TableView) -> dict[str, Any]:
    best, scores = [], []
    for at in range(len(one._questions)):
        one.question = at
        best.append([*one.best()])
        scores.append(one.scores().tolist())
    return {"questions": one._questions, "best": best, "scores": scores}


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    assert_fresh("scored.json", cases())


def test_the_best_cell_has_the_largest_sum() -> None:
    for one in widgets():
        for at, question in enumerate(one._questions):
            one.question = at
            scores = one.scores()
            assert scores.shape == (len(question["rows"]), len(question["columns"]))
            loops = [[row + column for column in question["columns"]] for row in question["rows"]]
            assert scores.tolist() == loops
            assert divmod(int(scores.argmax()), scores.shape[1]) == one.best()
            assert one.cell == [*one.best()], "every question begins at its best cell"


def test_the_sentence_says_which_score_is_wrong() -> None:
    one = table()
    assert one.description() == (
        "The best cell is “North Sea” in row 1, column “flows into”: 3.40 for its row and 2.80 for "
        "its column give 6.20. It is the answer."
    )
    assert one.right() is True
    one.question = 1
    assert one.description().endswith(
        "The answer is “810” in row 2, column “length in km”: the column is right, the row is not."
    )
    assert one.right() is False
    one.question = 2
    assert one.description().endswith("neither the row nor the column is right.")
    one.question = 3
    assert "answer" not in one.description()
    assert one.right() is None
    row_right = TableView([TableQuestion(SMALL, "b?", 1, 0)], [[0, 1, 0]], [[0, 1]])
    assert "the row is right, the column is not" in repr(row_right)


def test_logits_become_logarithms_of_probabilities() -> None:
    torch.manual_seed(0)
    rows, columns = torch.randn(3, 2, requires_grad=True), torch.randn(2, 2)
    one = TableView([ASKED], [rows], [columns])
    torch.testing.assert_close(one.scores(), cell_scores(rows, columns).detach().double())
    listed = TableView([ASKED], [rows.tolist()], [columns.tolist()])
    torch.testing.assert_close(listed.scores(), one.scores())
    mixed = TableView([ASKED], torch.tensor([SIDE]), np.array([TOP]))
    assert mixed.scores()[1, 1] == 2.5


def test_a_question_may_have_a_table_of_its_own() -> None:
    one = widgets()[1]
    assert one.scores().shape == (7, 5)
    one.question = 3
    assert one.scores().shape == (3, 2)
    assert one.cell == [*one.best()]
    with pytest.raises(traitlets.TraitError, match="`row` should be 0 to 2 here, got 6"):
        one.cell = (6, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], [], []), "`questions` should be 1 to 100, got 0"),
        ((ASKED, [SIDE], [TOP]), "`questions` should be a list, got TableQuestion"),
        ((["b?"], [SIDE], [TOP]), "`questions[0]` should be a TableQuestion(table, question, row,"),
        (([(SMALL, 3)], [SIDE], [TOP]), "or a pair (table, text), got tuple"),
        (([ASKED] * 2, [SIDE], [TOP] * 2), "`rows` should hold scores for each of the 2 questions"),
        (([ASKED], [SIDE], TOP), "`columns` should hold scores for each of the 1 questions, got 2"),
        (([ASKED], 3, [TOP]), "`rows` should be a list, got 3"),
        (([ASKED], [3], [TOP]), "`rows[0]` should be a list, got 3"),
        (([ASKED], [TOP], [TOP]), "`rows[0]` should be 3 scores, or logits (3, 2) of no and yes,"),
        (([ASKED], [SIDE], [SIDE]), "`columns[0]` should be 2 scores, or logits (2, 2)"),
        (([ASKED], [torch.zeros(3, 3)], [TOP]), "of no and yes, got (3, 3)"),
        (([ASKED], [[0, np.nan, 0]], [TOP]), "`rows[0]` has 1 values that are NaN"),
        (([ASKED], [[0, 2e6, 0]], [TOP]), "`rows[0]` has numbers beyond ±1,000,000"),
        (
            ([(Table(["x"], [["a"]] * 61), "?")], [[0] * 61], [[0]]),
            "at most 60 rows and 16 columns",
        ),
        (([(Table(["x" * 301], [["a"]]), "?")], [[0]], [[0]]), "a text of 301 characters; give at"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(arguments: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        TableView(*arguments)


def test_what_is_set_is_checked() -> None:
    one = TableView([ASKED], [SIDE], [TOP])
    one.cell = (2, 0)
    assert one.cell == [2, 0]
    for name, value, words in (
        ("question", 1, "`question` should be 0 to 0 here, got 1"),
        ("cell", [3, 0], "`row` should be 0 to 2 here, got 3"),
        ("cell", [0, 0.5], "`column` should be a whole number, got 0.5"),
        ("cell", [1], "`cell` should be a pair (row, column), got 1"),
        ("cell", 3, "`cell` should be a list, got 3"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    with pytest.raises(ValueError, match="`question` should be 0 to 0 here, got -1"):
        TableView([ASKED], [SIDE], [TOP], question=-1)


def test_the_picture_marks_the_best_cell_and_the_answer() -> None:
    one = table()
    one.question = 1
    parts = one.still().parts
    frames = [part for kind, part in parts if kind == "frame"]
    assert len(frames) == 2
    texts = [part["content"] for kind, part in parts if kind == "text"]
    assert {"best", "answer", "How long is the Rhône?", "row 4", "Lisbon"} <= {*texts}
    assert not any("those with the highest" in text for text in texts)
    one.question = 3
    assert sum(kind == "frame" for kind, _ in one.still().parts) == 1
    large = Table([*"abcdefghi"], [[str(row)] * 9 for row in range(40)])
    asked, side = TableQuestion(large, "0?", 39, 0), [-float(row) for row in range(40)]
    parts = TableView([asked], [side], [[*range(9)]]).still().parts
    texts = [part["content"] for kind, part in parts if kind == "text"]
    assert "12 of 40 rows and 6 of 9 columns, those with the highest scores." in texts
    assert {"row 0", "row 39"} <= {*texts}
    assert "row 12" not in texts


def test_a_saved_file_is_small(tmp_path: Path) -> None:
    path = table().save_html(tmp_path / "table.html")
    assert path.stat().st_size <= 60_000
    assert "Into which sea" in path.read_text(encoding="utf-8")


if __name__ == "__main__":
    write("scored.json", cases())
