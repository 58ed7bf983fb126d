"""Which cell of a table answers a question, when its rows and its columns are scored apart?

    TableView(header, rows, [Question("What is the capital of Peru?", row_scores, column_scores)])
    TableView(header, rows, questions, question=2)           # the third of several

The score of a cell is the sum of the scores of its row and its column, as in row-column
intersection (Glass et al. 2021). They stand along the side and the top of the table, and the cells
are coloured by their sums. A saved file stays alive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.figures.arguments import check_list, check_names, check_texts
from attnlab.figures.arrays import numbers
from attnlab_widgets import table_words
from attnlab_widgets.base import STATIC, BaseWidget, Checked, asked
from attnlab_widgets.drawing import Drawing
from attnlab_widgets.table_picture import picture

MOST_ROWS, MOST_COLUMNS, MOST_QUESTIONS, LONGEST = 60, 16, 100, 300
LARGEST = 1e6


@dataclass(frozen=True)
class Question:
    """A question to a table.

    ``text``           as a reader would ask it
    ``row_scores``     (rows,) one for each row
    ``column_scores``  (columns,) one for each column
    ``answer``         (row, column) of the cell that is right, counted from 0; None if unknown

    Scores are added, so they should be logits or logarithms of probabilities.
    """

    text: str
    row_scores: Sequence[float] | Tensor
    column_scores: Sequence[float] | Tensor
    answer: tuple[int, int] | None = None


class TableView(BaseWidget):
    """A table whose rows and columns have scores, for one of several questions.

    ``header``     the names of the columns, at most 16
    ``rows``       texts, one for each column; at most 60 rows
    ``questions``  at most 100 of class ``Question``

    These two can be read and set:

    ``question``   the one that is shown, counted from 0
    ``cell``       (row, column) that is read out; the best one of each question at first
    """

    _esm = STATIC / "table_view.js"

    question = traitlets.Int(0).tag(sync=True)
    cell: Any = Checked([0, 0]).tag(sync=True)
    _table: Any = traitlets.Dict().tag(sync=True)
    _questions: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        questions: Sequence[Question],
        *,
        question: int = 0,
        theme: str = "auto",
    ) -> None:
        names = _texts("header", header, MOST_COLUMNS)
        texts = _rows(rows, len(names))
        size = len(texts), len(names)
        given = check_list("questions", questions)
        if not 1 <= len(given) <= MOST_QUESTIONS:
            raise ValueError(f"`questions` should be 1 to {MOST_QUESTIONS}, got {len(given)}")
        asks = [_question(f"questions[{at}]", one, size) for at, one in enumerate(given)]
        at = _number("question", question, len(asks))
        super().__init__(
            _table={"header": names, "rows": texts}, _questions=asks, question=at,
            cell=table_words.best(asks[at]), theme=theme,
        )  # fmt: skip

    # What follows from the state

    def scores(self) -> Tensor:
        """(rows, columns) the scores of the cells; float64."""
        rows, columns = (
            torch.tensor(self._asked[name], dtype=torch.float64) for name in ("rows", "columns")
        )
        return rows[:, None] + columns

    def best(self) -> tuple[int, int]:
        """(row, column) of the cell with the highest score: the best row and the best column."""
        row, column = table_words.best(self._asked)
        return row, column

    def right(self) -> bool | None:
        """Whether the best cell is the answer; None where none is given."""
        answer = self._asked["answer"]
        return None if answer is None else self.best() == tuple(answer)

    def description(self) -> str:
        """The best cell, its score, and whether it is the answer."""
        return table_words.said_aloud(self._table, self._asked)

    def still(self) -> Drawing:
        """The table with its scores."""
        return picture(self._table, self._asked, self.theme)

    def __repr__(self) -> str:
        return f"TableView: {self._asked['text']} {self.description()}"

    @property
    def _asked(self) -> dict[str, Any]:
        found: dict[str, Any] = self._questions[self.question]
        return found

    # What may be set

    @traitlets.validate("question")
    def _a_question(self, proposal: Any) -> int:
        return asked(_number, "question", proposal["value"], len(self._questions))

    @traitlets.observe("question")
    def _to_the_best(self, _change: Any) -> None:
        self.cell = table_words.best(self._asked)

    @traitlets.validate("cell")
    def _a_cell(self, proposal: Any) -> list[int]:
        size = len(self._table["rows"]), len(self._table["header"])
        return asked(_cell, "cell", proposal["value"], size)


def _texts(name: str, given: Any, most: int) -> list[str]:
    found = check_names(name, given)
    if not 1 <= len(found) <= most:
        raise ValueError(f"`{name}` should be 1 to {most} texts, got {len(found)}")
    for text in found:
        if len(text) > LONGEST:
            raise ValueError(
                f"`{name}` has a text of {len(text)} characters; give at most {LONGEST}"
            )
    return found


def _rows(given: Any, columns: int) -> list[list[str]]:
    rows = check_list("rows", given)
    if not 1 <= len(rows) <= MOST_ROWS:
        raise ValueError(f"`rows` should be 1 to {MOST_ROWS} rows, got {len(rows)}")
    found = [_texts(f"rows[{at}]", row, MOST_COLUMNS) for at, row in enumerate(rows)]
    for at, row in enumerate(found):
        if len(row) != columns:
            raise ValueError(
                f"`rows[{at}]` should have {columns} cells, one for each name in `header`, got "
                f"{len(row)}"
            )
    return found


def _question(name: str, given: Any, size: tuple[int, int]) -> dict[str, Any]:
    if not isinstance(given, Question):
        raise TypeError(
            f"`{name}` should be a Question(text, row_scores, column_scores), got "
            f"{type(given).__name__}"
        )
    check_texts(**{f"{name}.text": given.text})
    _texts(f"{name}.text", [given.text], 1)
    scores = {
        part: _scores(f"{name}.{attribute}", getattr(given, attribute), count, part)
        for part, attribute, count in zip(
            ("rows", "columns"), ("row_scores", "column_scores"), size, strict=True
        )
    }
    answer = None if given.answer is None else _cell(f"{name}.answer", given.answer, size)
    return {"text": given.text, **scores, "answer": answer}


def _scores(name: str, given: Any, count: int, part: str) -> list[float]:
    found: list[float] = numbers(name, given, "n").tolist()
    if len(found) != count:
        raise ValueError(
            f"`{name}` should be {count} numbers, one for each of the {part}, got {len(found)}"
        )
    if max(map(abs, found)) > LARGEST:
        raise ValueError(f"`{name}` has numbers beyond ±{LARGEST:,.0f}; make them smaller")
    return found


def _cell(name: str, given: Any, size: tuple[int, int]) -> list[int]:
    found = check_list(name, given)
    if len(found) != 2:
        raise ValueError(f"`{name}` should be a pair (row, column), got {len(found)} numbers")
    return [
        _number(f"the {part} of {name}", at, count)
        for part, at, count in zip(("row", "column"), found, size, strict=True)
    ]


def _number(name: str, given: Any, count: int) -> int:
    found = check_integer(f"`{name}`", given)
    if not 0 <= found < count:
        raise ValueError(f"`{name}` should be 0 to {count - 1} here, got {found}")
    return found
