"""Questions about tables of facts: does this row, or this column, hold the answer?

    [cls] what is the code of not found [sep] code : 404 * phrase : not found * kind : client …
                                                                                    →  1

The facts ship with Python (`attnlab.tasks.facts`). A question names one row of a table by a value
that no other row has, and asks for another column; its answer is the cell where the two meet. Glass
et al. (NAACL 2021, arXiv:2104.08303) train one model on rows and one on columns, and add their
scores. The rows of a table stand near each other among the facts, so names are similar, and the
name of one exception is the parent of another.

A question of ``ask="largest"`` names no row: "which phrase has the largest code". Whether a row is
right then depends on the other rows, which are not read with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnlab.core.integers import check_integer
from attnlab.core.options import check_value
from attnlab.core.suggest import check_choice
from attnlab.structures.table import Table, TableQuestion
from attnlab.structures.text_pairs import TextPairs
from attnlab.tasks import SPLITS, Batch, Example, Task
from attnlab.tasks.facts import Facts, facts, facts_of_split, number, subjects

SPECIAL = ("[pad]", "[cls]", "[sep]", ":", "*")
_LARGEST = "which {asked} has the largest {size}"
_ANSWERS = ("no", "yes")
_Names = tuple[str, ...]


@dataclass(frozen=True)
class Tables(Task):
    """Rows (b, n) of a question and a row, or a column, of its table; class 1 if it is the right
    one. Consecutive rows of a batch belong to one question, until all of its table is read.

    A fact is in one split only, so no row of a validation table is seen in training, and no
    question about one is asked.

    Args:
        of: "rows" or "columns": what is read with the question.
        ask: "lookup" (a cell of the row that the question names) or, for rows, "largest".
        subjects: what the facts are about, each table about one of them.
        rows: how many rows a table has.
    """

    of: str = "rows"
    ask: str = "lookup"
    subjects: tuple[str, ...] = ("http", "exceptions", "keywords", "characters")
    rows: int = 5
    name: ClassVar[str] = "tables"
    kind: ClassVar[str] = "classifier"
    classes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_choice("text", self.of, ("rows", "columns"))
        check_choice("question", self.ask, ("lookup", "largest"))
        self._check_sizes(rows=2)
        # The class is frozen, so what is normalised is set this way.
        object.__setattr__(self, "subjects", check_value("subjects", self.subjects, _Names))
        for subject in self.subjects:
            check_choice("subject", subject, subjects())
        if not self.subjects or len(set(self.subjects)) < len(self.subjects):
            raise ValueError(
                f"subjects should name one subject or more, each once, got {self.subjects!r}"
            )
        self._check_ask()
        for subject in self.subjects:
            most = min(len(facts_of_split(subject, split)) for split in SPLITS)
            if self.rows > most:
                raise ValueError(
                    f"a table about {subject} has at most {most} rows, as many as there are in the "
                    f"smaller split, got rows={self.rows}"
                )

    def _check_ask(self) -> None:
        if self.ask == "largest" and self.of == "columns":
            raise ValueError(
                "ask='largest' is for of='rows': no row is named, so a column of a validation "
                "table may be one of training, word for word"
            )
        lacking = [s for s in self.subjects if self.ask == "largest" and not facts(s).sizes]
        if lacking:
            raise ValueError(
                f"the facts about {lacking[0]} have no column of numbers to compare: leave it out "
                "of the subjects, or ask='lookup'"
            )

    @property
    def vocab(self) -> int:
        return len(_vocabulary(self.subjects))

    @property
    def length(self) -> int:
        """The number of tokens of the longest question with the longest text."""
        longest_text = _longest_text(self.subjects, self.rows, self.of)
        return 3 + _longest_question(self.subjects) + longest_text

    def questions(self, split: str, size: int, seed: int) -> list[TableQuestion]:
        """`size` questions, each about a table of its own."""
        size, generator = self._begin(split, size, seed)
        return self._questions(split, size, generator)

    def pairs(self, question: TableQuestion) -> Batch:
        """All rows, or columns, of a question's table, in their order, each with the question."""
        return self._batch(self._read(question))

    def encode(self, text: str) -> Tensor:
        """The tokens (n,) of words, one space between two; a ValueError for an unknown word."""
        known = _vocabulary(self.subjects)
        if not isinstance(text, str):
            raise TypeError(f"encode takes a str, got a {type(text).__name__}")
        for word in text.split():
            if word not in known:
                raise ValueError(f"no fact or question of this task has the word {word!r}")
        return torch.tensor([known[word] for word in text.split()], dtype=torch.long)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The words of tokens (n,)."""
        words = list(_vocabulary(self.subjects))
        return [words[check_integer("a token", int(i), at_least=0)] for i in ids]

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        pairs: list[_Pair] = []
        while len(pairs) < size:
            for question in self._questions(split, 1, generator):
                pairs += self._read(question)
        return self._batch(pairs[:size])

    def _questions(
        self, split: str, size: int, generator: np.random.Generator
    ) -> list[TableQuestion]:
        random = Random(int(generator.integers(2**63)))
        return [self._question(split, random) for _ in range(size)]

    def _question(self, split: str, random: Random) -> TableQuestion:
        subject = random.choice(self.subjects)
        own, rows = facts(subject), facts_of_split(subject, split)
        while True:
            table = self._table(own.header, rows, random)
            if self.ask == "lookup":
                return _lookup(own, table, random)
            size = random.choice(own.sizes)
            place = table.header.index(size)
            values = [number(row[place]) for row in table.rows]
            if values.count(max(values)) == 1:  # of equals none is the answer
                return _largest(table, values.index(max(values)), size, random)

    def _table(self, names: _Names, rows: list[_Names], random: Random) -> Table:
        """Some of twice as many neighbours, and the columns, in any order."""
        first = random.randrange(len(rows))
        near = [rows[(first + i) % len(rows)] for i in range(min(2 * self.rows, len(rows)))]
        header = random.sample(names, len(names))
        order = [names.index(name) for name in header]
        chosen = random.sample(near, self.rows)
        return Table(header, [[row[place] for place in order] for row in chosen])

    def _read(self, question: TableQuestion) -> list["_Pair"]:
        table, by_row = question.table, self.of == "rows"
        asked = self.encode(f"[cls] {question.question} [sep]")
        count = len(table.rows if by_row else table.header)
        text = table.row_text if by_row else table.column_text
        right = question.row if by_row else question.column
        return [(asked, self.encode(f"{text(i)} [sep]"), int(i == right)) for i in range(count)]

    def _batch(self, pairs: list["_Pair"]) -> Batch:
        texts = [(asked, text) for asked, text, _ in pairs]
        rows = [torch.cat(each) for each in texts]
        asked, read = ([len(pair[part]) for pair in texts] for part in (0, 1))
        structure = TextPairs.of(asked, read)
        targets = torch.tensor([right for _, _, right in pairs])
        padded = pad_sequence(rows, batch_first=True)
        return Batch(padded, targets, structure.padding, structure=structure)

    def _describe(self, batch: Batch) -> Example:
        tokens = self.tokens(batch.inputs[0])
        answer = _ANSWERS[int(batch.targets[0])]
        what = self.of.removesuffix("s")
        asked = " ".join(tokens[1 : tokens.index("[sep]")])
        return Example(
            title=f"Is this the right {what}? {answer.capitalize()}",
            description=f"Does the {what} hold the answer to “{asked}”? The answer is {answer}. "
            f"The tokens: {' '.join(tokens)}.",
            tokens=tokens,
            labels=[answer],
        )


_Pair = tuple[Tensor, Tensor, int]


def _lookup(own: Facts, table: Table, random: Random) -> TableQuestion:
    given = random.choice(own.names)
    asked = random.choice([name for name in own.phrases if name != given])
    row = random.randrange(len(table.rows))
    named = table.rows[row][table.header.index(given)]
    question = random.choice(own.phrases[asked]).format(named)
    return TableQuestion(table, question, row, table.header.index(asked))


def _largest(table: Table, row: int, size: str, random: Random) -> TableQuestion:
    asked = random.choice([name for name in table.header if name != size])
    question = _LARGEST.format(asked=asked, size=size)
    return TableQuestion(table, question, row, table.header.index(asked))


@lru_cache(maxsize=8)
def _vocabulary(chosen: _Names) -> dict[str, int]:
    """Word → token, of all that may be asked and all that may stand in a table."""
    words = set(_LARGEST.format(asked="", size="").split())
    for own in map(facts, chosen):
        words.update(own.header)
        words.update(word for row in own.rows for cell in row for word in cell.split())
        phrases = (phrase for ways in own.phrases.values() for phrase in ways)
        words.update(word for phrase in phrases for word in phrase.format("").split())
    return {word: place for place, word in enumerate((*SPECIAL, *sorted(words - set(SPECIAL))))}


def _longest_question(chosen: _Names) -> int:
    return max(
        len(_LARGEST.format(asked="x", size="x").split()),
        *(
            len(phrase.split()) - 1 + _widest(subject, name)
            for subject in chosen
            for ways in facts(subject).phrases.values()
            for phrase in ways
            for name in facts(subject).names
        ),
    )


def _longest_text(chosen: _Names, rows: int, of: str) -> int:
    every = [[_widest(subject, name) for name in facts(subject).header] for subject in chosen]
    if of == "rows":
        return max(sum(widths) + 3 * len(widths) - 1 for widths in every)
    return max(1 + rows * (1 + max(widths)) for widths in every)


@lru_cache(maxsize=64)
def _widest(subject: str, name: str) -> int:
    """The most words of a cell in a column."""
    own = facts(subject)
    place = own.header.index(name)
    return max(len(row[place].split()) for row in own.rows)
