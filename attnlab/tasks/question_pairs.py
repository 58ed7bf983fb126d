r"""Questions and answers made from tables: answers first, then questions, then a filter.

Whoever has texts but no questions can let a model write them. TP3 does so in three steps. Before
the model: choose what shall be an answer. The model: write a question whose answer it is. Behind
it: leave out bad pairs. Here the texts are rows of tables, so every cell can be an answer:

    question answer: not found context: code : 404 * phrase : not found * kind : client error
        → what does 404 mean
    answer question: what does 404 mean context: code : 404 * phrase : not found …
        → not found

The filter is the **round trip**: a second model, which was not taught by the first, reads the
question and the text. A pair stays if it gives the answer back. What a question says of its table
decides here whether a pair is true, as the facts are known (``attnlab.tasks.facts``); so the
precision can be measured with the filter and without it.

What the filter cannot see: a question that is right for this row and for others too, and a mistake
that both models share.

Departures. Only the abstract of the paper was available: how its answers are chosen and its pairs
are filtered is not known here, and the round trip is that of Alberti and others.

Zhang, Zhang, Wang. Downstream Transformer Generation of Question-Answer Pairs with Preprocessing
and Postprocessing Pipelines. 2022. Alberti, Andor, Pitler, Devlin, Collins.
Synthetic QA Corpora Generation with Roundtrip Consistency. ACL 2019, arXiv:1906.05416.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attnlab.structures.table import Table
from attnlab.tasks.facts import facts
from attnlab.tasks.text_tasks import Pipeline, TextTask

PIPELINE = Pipeline(
    (
        TextTask(name="question", fields=("answer", "context")),
        TextTask(name="answer", fields=("question", "context")),
    )
)
"""The two tasks as texts: a writer of questions, and a reader that answers them."""

Model = Callable[[list[str]], Sequence[str]]
"""Texts that are read → as many texts that are written."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table that shall be an answer."""

    table: Table
    row: int
    column: int

    @property
    def answer(self) -> str:
        return self.table.rows[self.row][self.column]

    @property
    def context(self) -> str:
        """The row as a text."""
        return self.table.row_text(self.row)


class Pair(NamedTuple):
    """A question about a cell, and what a reader answered when it was asked."""

    cell: Cell
    question: str
    read: str | None

    @property
    def returned(self) -> bool:
        """Whether the reader gave the answer back."""
        return self.read == self.cell.answer


class Made(NamedTuple):
    """All pairs that were written; those that the round trip keeps are ``kept``."""

    pairs: tuple[Pair, ...]

    @property
    def kept(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.returned)

    @property
    def share_kept(self) -> float:
        """The yield: the share of the cells of which a pair is left."""
        return len(self.kept) / len(self.pairs)


def cells(table: Table, columns: Sequence[str] | None = None) -> list[Cell]:
    """The cells that may be answers: all that have words, of all columns or of those named.

    A ValueError for a column that the table has not, and where no cell is left.
    """
    if not isinstance(table, Table):
        raise TypeError(f"table should be a Table, got a {type(table).__name__}")
    named = table.header if columns is None else columns
    for name in named:
        if name not in table.header:
            raise ValueError(
                f"the table has no column {name!r}; its columns are {', '.join(table.header)}"
            )
    found = [
        Cell(table, row, table.header.index(name))
        for row in range(len(table.rows))
        for name in named
        if table.rows[row][table.header.index(name)].split()
    ]
    if not found:
        raise ValueError("no cell of the chosen columns has a word in it, so nothing can be asked")
    return found


def made(chosen: Sequence[Cell], writer: Model, reader: Model) -> Made:
    """A pair for each cell: ``writer`` writes the question, ``reader`` answers it from the row.

    A question without a word is not read: it answers nothing. A ValueError where a model does not
    give one text for each.
    """
    if not len(chosen) or not all(isinstance(cell, Cell) for cell in chosen):
        raise ValueError(f"chosen should be a list of one cell at least, got {chosen!r}")
    asked = [
        PIPELINE.task("question").source({"answer": cell.answer, "context": cell.context})
        for cell in chosen
    ]
    questions = PIPELINE.values("question", _written("writer", writer, asked))
    read = [
        (place, PIPELINE.task("answer").source({"question": str(each), "context": cell.context}))
        for place, (cell, each) in enumerate(zip(chosen, questions, strict=True))
        if each is not None
    ]
    texts = _written("reader", reader, [text for _, text in read]) if read else []
    answers = dict(zip((place for place, _ in read), texts, strict=True))
    return Made(
        tuple(
            Pair(cell, str(each or ""), _answer(answers.get(place)))
            for place, (cell, each) in enumerate(zip(chosen, questions, strict=True))
        )
    )


def _answer(text: str | None) -> str | None:
    value = None if text is None else PIPELINE.task("answer").value(text)
    return None if value is None else str(value)


def _written(who: str, model: Model, texts: list[str]) -> list[str]:
    if not callable(model):
        raise TypeError(f"{who} should be a function from texts to texts, got {model!r}")
    found = list(model(list(texts)))
    if len(found) != len(texts):
        raise ValueError(
            f"{who} should write one text for each that it reads, got {len(found)} for {len(texts)}"
        )
    return found


# ---- what is true


def is_true(subject: str, question: str, answer: str) -> bool:
    """Whether the facts about a subject give this answer to a question.

    A question is understood if it is one of the subject's phrases with the name of a row; what is
    not understood is not true.
    """
    own = facts(subject)
    for asked, phrases in own.phrases.items():
        for phrase in phrases:
            before, _, after = phrase.partition("{}")
            if not (question.startswith(before) and question.endswith(after)):
                continue
            named = question[len(before) : len(question) - len(after)]
            for name in own.names:
                places = own.header.index(name), own.header.index(asked)
                if name != asked and any(
                    row[places[0]] == named and row[places[1]] == answer for row in own.rows
                ):
                    return True
    return False


def precision(subject: str, pairs: Sequence[Pair]) -> float:
    """The share of pairs that are true; a ValueError for no pair."""
    if not len(pairs):
        raise ValueError("no pair is left, so there is no share of them that is true")
    true = [is_true(subject, pair.question, pair.cell.answer) for pair in pairs]
    return sum(true) / len(true)
