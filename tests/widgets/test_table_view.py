"""TableView: the score of a cell is the sum of two; the sentence says which of the two is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.table_view import Question, TableView

from tests.widgets.stills import table

FIXTURES = Path(__file__).parents[2] / "widgets/test/scored.json"
HEADER = ["name", "year"]
ROWS = [["a", "1"], ["b", "2"], ["c", "3"]]
ASKED = Question("When was b?", [0.0, 2.0, 1.0], [-1.0, 0.5], (1, 1))


def widgets() -> list[TableView]:
    rng = np.random.default_rng(20)
    rows = [[f"{row}.{column}" for column in range(5)] for row in range(7)]
    scores = [(rng.normal(size=7), rng.normal(size=5)) for _ in range(4)]
    answers = [None, (0, 0), (6, 4), (3, 2)]
    many = [Question(f"{at}?", *scores[at], answers[at]) for at in range(4)]
    ties = Question("Which?", [1.0, 1.0, 1.0], [0.25, 0.25], (2, 1))
    return [table(), TableView([*"vwxyz"], rows, many), TableView(HEADER, ROWS, [ASKED, ties])]


def case(one: TableView) -> dict[str, Any]:
    said, best, scores = [], [], []
    for at in range(len(one._questions)):
        one.question = at
        said.append(one.description())
        best.append([*one.best()])
        scores.append(one.scores().tolist())
    found = {"said": said, "best": best, "scores": scores}
    return {"table": one._table, "questions": one._questions, **found}


def test_the_front_end_is_tested_on_these_cases() -> None:
    """Where they differ they are written anew for the next `npm test`, and this fails once."""
    cases = json.loads(json.dumps([case(one) for one in widgets()]))
    known = json.loads(FIXTURES.read_text()) if FIXTURES.exists() else []
    if cases != known:
        FIXTURES.write_text(json.dumps(cases, ensure_ascii=False) + "\n")
        pytest.fail(f"{FIXTURES.name} was out of date and has been written anew: run npm test")


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
    row_right = TableView(HEADER, ROWS, [Question("b?", [0, 1, 0], [0, 1], (1, 0))])
    assert "the row is right, the column is not" in repr(row_right)


def test_tensors_and_arrays_are_scores_too() -> None:
    scores = torch.tensor([0.0, 2.0, 1.0], requires_grad=True), np.array([-1, 0.5])
    one = TableView(HEADER, ROWS, [Question("b?", *scores)])
    assert one.best() == (1, 1)
    assert one.scores()[1, 1] == 2.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], ROWS, [ASKED]), "`header` should be 1 to 16 texts, got 0"),
        ((HEADER, [], [ASKED]), "`rows` should be 1 to 60 rows, got 0"),
        ((HEADER, ROWS * 21, [ASKED]), "`rows` should be 1 to 60 rows, got 63"),
        ((HEADER, [["a", "1"], ["b"]], [ASKED]), "`rows[1]` should have 2 cells, one"),
        ((HEADER, [["a", 1]], [ASKED]), "`rows[0]` must hold texts, got 1 (int)"),
        ((HEADER, ["ab"], [ASKED]), "`rows[0]` must be a list, got 'ab' (str)"),
        ((HEADER, [["a", "1" * 301]], [ASKED]), "a text of 301 characters; give at most 300"),
        ((HEADER, ROWS, []), "`questions` should be 1 to 100, got 0"),
        ((HEADER, ROWS, ["b?"]), "`questions[0]` should be a Question(text, row_scores, column_"),
        ((HEADER, ROWS, ASKED), "`questions` must be a list, got Question("),
        ((HEADER, ROWS, [Question(3, [0] * 3, [0] * 2)]), "`questions[0].text` must be text"),
        (
            (HEADER, ROWS, [ASKED, Question("b?", [0] * 2, [0] * 2)]),
            "`questions[1].row_scores` should be 3 numbers, one for each of the rows, got 2",
        ),
        (
            (HEADER, ROWS, [Question("b?", [0] * 3, [0] * 3)]),
            "`questions[0].column_scores` should be 2 numbers, one for each of the columns, got 3",
        ),
        ((HEADER, ROWS, [Question("b?", [0, np.nan, 0], [0, 0])]), "`questions[0].row_scores` has"),
        ((HEADER, ROWS, [Question("b?", [0, 2e6, 0], [0, 0])]), "has numbers beyond ±1,000,000"),
        (
            (HEADER, ROWS, [Question("b?", [0] * 3, [0] * 2, (3, 0))]),
            "`the row of questions[0].answer` should be 0 to 2 here, got 3",
        ),
        ((HEADER, ROWS, [Question("b?", [0] * 3, [0] * 2, (1,))]), "a pair (row, column), got 1"),
        ((HEADER, ROWS, [Question("b?", [0] * 3, [0] * 2, "b")]), "answer` must be a list, got"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(arguments: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        TableView(*arguments)


def test_what_is_set_is_checked() -> None:
    one = TableView(HEADER, ROWS, [ASKED])
    one.cell = (2, 0)
    assert one.cell == [2, 0]
    for name, value, words in (
        ("question", 1, "`question` should be 0 to 0 here, got 1"),
        ("cell", [3, 0], "`the row of cell` should be 0 to 2 here, got 3"),
        ("cell", [0, 0.5], "`the column of cell` should be a whole number, got 0.5"),
        ("cell", 3, "`cell` must be a list, got 3"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    with pytest.raises(ValueError, match="`question` should be 0 to 0 here, got -1"):
        TableView(HEADER, ROWS, [ASKED], question=-1)


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
    rows = [[str(row)] * 9 for row in range(40)]
    large = Question("0?", [-float(row) for row in range(40)], range(9), (39, 0))
    parts = TableView([*"abcdefghi"], rows, [large]).still().parts
    texts = [part["content"] for kind, part in parts if kind == "text"]
    assert "12 of 40 rows and 6 of 9 columns, those with the highest scores." in texts
    assert {"row 0", "row 39"} <= {*texts}
    assert "row 12" not in texts


def test_a_saved_file_is_small(tmp_path: Path) -> None:
    path = table().save_html(tmp_path / "table.html")
    assert path.stat().st_size <= 60_000
    assert "Into which sea" in path.read_text(encoding="utf-8")
