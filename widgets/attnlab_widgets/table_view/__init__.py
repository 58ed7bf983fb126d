"""Which cell of a table answers a question, when its rows and its columns are scored apart?

    questions = task.questions("validation", 6, seed=0)      # of class TableQuestion
    TableView(questions, row_logits, column_logits)          # of each question (r, 2) and (c, 2)
    TableView([(Table(header, rows), "Which sea?")], [[0.1, 2.3]], [[0.4, 1.2, -0.7]])  # scores

The score of a cell is the sum of the scores of its row and its column, as in row-column
intersection (Glass et al. 2021). They stand along the side and the top of the table, and the cells
are coloured by their sums. A saved file stays alive.
"""

from collections.abc import Sequence
from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.core.arguments import check_list
from attnlab.core.arrays import numbers
from attnlab.core.integers import check_integer
from attnlab.core.markup import legible
from attnlab.figures.drawing import Drawing
from attnlab.structures.table import Table, TableQuestion
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error
from attnlab_widgets.table_view import words
from attnlab_widgets.table_view.picture import picture

MOST_ROWS, MOST_COLUMNS, MOST_QUESTIONS, LONGEST = 60, 16, 100, 300
LARGEST = 1e6


class TableView(BaseWidget):
    """Tables whose rows and columns have scores for a question.

    ``questions``  1 to 100, of class ``TableQuestion``; or pairs (table, text) where no answer is
                   known. A table has at most 60 rows and 16 columns
    ``rows``       for each question the scores of its rows, (r,); or logits (r, 2) of no and yes,
                   from which the logarithms of the probabilities of "yes" are computed
    ``columns``    the same of its columns, (c,) or (c, 2)

    These two can be read and set:

    ``question``   the one that is shown, counted from 0
    ``cell``       (row, column) that is read out; the best one of each question at first

    Scores are added, so probabilities should be given as their logarithms.
    """

    _esm = STATIC / "table_view.js"

    question = traitlets.Int(0).tag(sync=True)
    cell: Any = Checked([0, 0]).tag(sync=True)
    _questions: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        questions: Sequence[TableQuestion | tuple[Table, str]],
        rows: Sequence[Any],
        columns: Sequence[Any],
        *,
        question: int = 0,
        theme: str = "auto",
    ) -> None:
        given = check_list("questions", questions)
        if not 1 <= len(given) <= MOST_QUESTIONS:
            raise ValueError(f"`questions` should be 1 to {MOST_QUESTIONS}, got {len(given)}")
        scores = check_list("rows", rows), check_list("columns", columns)
        for name, found in zip(("rows", "columns"), scores, strict=True):
            if len(found) != len(given):
                raise ValueError(
                    f"`{name}` should hold scores for each of the {len(given)} questions, got "
                    f"{len(found)}"
                )
        parts = zip(range(len(given)), given, *scores, strict=True)
        asks = [_question(*each) for each in parts]
        at = _number("question", question, len(asks))
        super().__init__(_questions=asks, question=at, cell=words.best(asks[at]), theme=theme)

    # What follows from the state

    def scores(self) -> Tensor:
        """(r, c) the scores of the cells; float64."""
        rows, columns = (
            torch.tensor(self._asked[name], dtype=torch.float64) for name in ("rows", "columns")
        )
        return rows[:, None] + columns

    def best(self) -> tuple[int, int]:
        """(row, column) of the cell with the highest score: the best row and the best column."""
        row, column = words.best(self._asked)
        return row, column

    def right(self) -> bool | None:
        """Whether the best cell is the answer; None where none is given."""
        answer = self._asked["answer"]
        return None if answer is None else self.best() == tuple(answer)

    def description(self) -> str:
        """The best cell, its score, and whether it is the answer."""
        return str(self._asked["said"])

    def still(self) -> Drawing:
        """The table with its scores."""
        return picture(self._asked, self.theme)

    def __repr__(self) -> str:
        return f"TableView: {self._asked['text']} {self.description()}"

    @property
    def _asked(self) -> dict[str, Any]:
        found: dict[str, Any] = self._questions[self.question]
        return found

    # What may be set

    @traitlets.validate("question")
    def _a_question(self, proposal: Any) -> int:
        return as_trait_error(_number, "question", proposal["value"], len(self._questions))

    @traitlets.observe("question")
    def _to_the_best(self, _change: Any) -> None:
        self.cell = words.best(self._asked)

    @traitlets.validate("cell")
    def _a_cell(self, proposal: Any) -> list[int]:
        return as_trait_error(_cell, proposal["value"], self._asked)


def _question(at: int, given: Any, rows: Any, columns: Any) -> dict[str, Any]:
    """What the page needs of a question: text, table, scores and answer."""
    table, text, answer = _parts(f"questions[{at}]", given)
    size = len(table.rows), len(table.header)
    if size[0] > MOST_ROWS or size[1] > MOST_COLUMNS:
        raise ValueError(
            f"the table of `questions[{at}]` should have at most {MOST_ROWS} rows and "
            f"{MOST_COLUMNS} columns, got {size[0]} and {size[1]}"
        )
    text = legible(text)
    header, *cells = ([*map(legible, row)] for row in (table.header, *table.rows))
    texts = [text, *header, *(cell for row in cells for cell in row)]
    if (longest := max(map(len, texts))) > LONGEST:
        raise ValueError(
            f"`questions[{at}]` has a text of {longest} characters; give at most {LONGEST}"
        )
    found = {
        "text": text,
        "header": header,
        "cells": cells,
        "rows": _scores(f"rows[{at}]", rows, size[0]),
        "columns": _scores(f"columns[{at}]", columns, size[1]),
        "answer": answer,
    }
    return {**found, "said": words.announcement(found)}


def _parts(name: str, given: Any) -> tuple[Table, str, list[int] | None]:
    if isinstance(given, TableQuestion):
        return given.table, given.question, [given.row, given.column]
    pair = isinstance(given, tuple) and len(given) == 2
    if pair and isinstance(given[0], Table) and isinstance(given[1], str):
        return *given, None
    raise TypeError(
        f"`{name}` should be a TableQuestion(table, question, row, column) or a pair (table, "
        f"text), got {type(given).__name__}"
    )


def _scores(name: str, given: Any, count: int) -> list[float]:
    first = check_list(name, given)[:1]
    deep = getattr(given, "ndim", 1 + any(hasattr(one, "__len__") for one in first)) > 1
    found = torch.from_numpy(numbers(name, given, "n 2" if deep else "n"))
    if found.shape != (count, 2)[: found.dim()]:
        raise ValueError(
            f"`{name}` should be {count} scores, or logits ({count}, 2) of no and yes, got "
            f"{tuple(found.shape)}"
        )
    if found.abs().max() > LARGEST:
        raise ValueError(f"`{name}` has numbers beyond ±{LARGEST:,.0f}; make them smaller")
    scores: list[float] = (found.log_softmax(-1)[:, 1] if deep else found).tolist()
    return scores


def _cell(given: Any, question: words.Asked) -> list[int]:
    found = check_list("cell", given)
    if len(found) != 2:
        raise ValueError(f"`cell` should be a pair (row, column), got {len(found)} numbers")
    counts = len(question["rows"]), len(question["columns"])
    return [
        _number(name, at, count)
        for name, at, count in zip(("row", "column"), found, counts, strict=True)
    ]


def _number(name: str, given: Any, count: int) -> int:
    found = check_integer(f"`{name}`", given)
    if not 0 <= found < count:
        raise ValueError(f"`{name}` should be 0 to {count - 1} here, got {found}")
    return found
