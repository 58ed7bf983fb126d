"""Which cell of its table a question leads to, in a sentence or two. It depends on the question
alone, so it is sent with it, and the page shows it."""

from collections.abc import Mapping
from typing import Any

from attnlab_widgets.words import two

Asked = Mapping[str, Any]
"""A question: ``text``, ``header`` and ``cells`` of its table, scores of ``rows`` and ``columns``,
``answer``."""


def best(question: Asked) -> list[int]:
    """[row, column] of the highest score, which is in the best row and in the best column."""
    return [_first_largest(question["rows"]), _first_largest(question["columns"])]


def announcement(question: Asked) -> str:
    """The best cell, its score, and whether it is the answer."""
    cell, answer = best(question), question["answer"]
    row, column = question["rows"][cell[0]], question["columns"][cell[1]]
    found = (
        f"The best cell is {_place(question, cell)}: {two(row)} for its row and {two(column)} for "
        f"its column give {two(row + column)}."
    )
    if answer is None:
        return found
    if answer == cell:
        return f"{found} It is the answer."
    wrong = _wrong(cell[0] == answer[0], cell[1] == answer[1])
    return f"{found} The answer is {_place(question, answer)}: {wrong}."


def _wrong(row: bool, column: bool) -> str:
    """Which of the two scores points elsewhere."""
    if row:
        return "the row is right, the column is not"
    if column:
        return "the column is right, the row is not"
    return "neither the row nor the column is right"


def _place(question: Asked, cell: list[int]) -> str:
    row, column = cell
    text, name = question["cells"][row][column], question["header"][column]
    return f"“{text}” in row {row}, column “{name}”"


def _first_largest(scores: list[float]) -> int:
    return scores.index(max(scores))
