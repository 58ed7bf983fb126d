"""Question writer: a small T5 writes questions about table cells, and a reader filters them.

Nothing is timed. ``attnlab.tasks.question_pairs`` has the steps around the models: every cell of a
column is an answer, a writer reads "question answer: … context: …" and writes the question, and the
round trip keeps a pair if a reader gives the answer back. Here the models are trained. All are T5
(``attnlab.models.t5``) of width 48 with two layers on each side, and read and write words.

They learn from rows that are made up: a keyword of Python with a kind, a number of letters and a
capital that are drawn at random, and never those it has. So no fact can be known by heart, and
what is to be answered stands in the row alone. They are asked about the true table of keywords,
three cells of each row; whether a pair is true is what the facts say.

    writer, step 100 … 400         is asked after so many updates of 32 rows
    no filter                      every pair is kept
    reader that always answers     was taught with questions about the row alone
    reader that may refuse         was also taught to write "unknown" where the question names
                                   another keyword than the row, as one question in three does

Readers have 1,200 updates and the seed of their writer. All have the rate 3e-3, which was not
searched. A reader with one layer on each side had not learned to refuse after 2,400 updates (a
fourth seed, rate 6e-3), so there are two.

Rows are the yield (the share of all cells of which a pair is left) and the precision (the share of
those pairs that are true), in per cent; and of each reader how many questions it answers rightly
that the facts answer, and how many it refuses that name the keyword of another row. Lesson 65 shows
what

    python -m attnlab.experiments question_writer --threads 1 --json \\
        attnlab/experiments/assets/65_question_writer.json

has written; rows that the file holds are not trained again.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from attnlab import catalog
from attnlab.experiments.grid import BySeed, by_fit, seeded
from attnlab.measure.report import Row
from attnlab.models import t5
from attnlab.models.generate import generate
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.spans import Ids
from attnlab.structures.table import Table
from attnlab.tasks import SPLITS, Batch
from attnlab.tasks.facts import facts
from attnlab.tasks.question_pairs import PIPELINE, Model, cells, made, precision
from attnlab.tasks.sequences import next_words

SUBJECT, REFUSES = "keywords", "unknown"
FACTS = facts(SUBJECT)
TABLE = Table(FACTS.header, FACTS.rows)
ASKED = tuple(FACTS.phrases)
"""The columns whose cells are answers."""
AFTER, READING, LONGEST = (100, 200, 400), 1200, 8
"""Updates after which the writer is asked, those of a reader, and the words of the longest text."""
SIZES = t5.T5Options(dim=48, layers=2, heads=4, head_dim=12, hidden=96, max_len=40)
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
WRITER, ANSWERS, MAY_REFUSE = "writer", "reader that always answers", "reader that may refuse"
READERS = (ANSWERS, MAY_REFUSE)


@dataclass(frozen=True)
class MadeUp:
    """Pairs of texts for a writer or a reader, about rows that are no facts."""

    whose: str
    name: ClassVar[str] = "made-up rows"
    kind: ClassVar[str] = "language_model"

    def texts(self, split: str, size: int, seed: int) -> list[tuple[str, str]]:
        """(what is read, what is to be written)."""
        generator = np.random.default_rng([8, seed, SPLITS.index(split)])

        def one(values: Sequence[str]) -> str:
            return values[int(generator.integers(len(values)))]

        columns = [sorted({row[at] for row in FACTS.rows}) for at in range(len(FACTS.header))]
        found = list[tuple[str, str]]()
        while len(found) < size:
            row = tuple(one(values) for values in columns)
            if row in FACTS.rows:
                continue
            column, other = one(ASKED), one(columns[0])
            answer, context = (
                row[FACTS.header.index(column)],
                Table(FACTS.header, [row]).row_text(0),
            )
            strange = self.whose == MAY_REFUSE and generator.random() < 1 / 3 and other != row[0]
            question = one(FACTS.phrases[column]).format(other if strange else row[0])
            found.append(
                _pair("question", {"answer": answer, "context": context}, question)
                if self.whose == WRITER
                else _pair(
                    "answer",
                    {"question": question, "context": context},
                    REFUSES if strange else answer,
                )
            )
        return found

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Rows (b, n) of a question and its answer, of which the answer is scored."""
        return next_words(
            [(encoded(read), encoded(said)) for read, said in self.texts(split, size, seed)]
        )


def _pair(name: str, fields: Mapping[str, str], answer: str) -> tuple[str, str]:
    ((read, said),) = PIPELINE.pairs(name, [(fields, answer)])
    return read, said


@cache
def words() -> tuple[str, ...]:
    """All words of questions, rows and answers."""
    texts = [TABLE.row_text(row) for row in range(len(FACTS.rows))]
    texts += [phrase.format("") for phrases in FACTS.phrases.values() for phrase in phrases]
    texts += [task.source(dict.fromkeys(task.fields, REFUSES)) for task in PIPELINE.tasks]
    return tuple(sorted({word for text in texts for word in text.split()}))


def encoded(text: str) -> list[int]:
    """The tokens of a text."""
    return [words().index(word) for word in text.split()]


@cache
def _objective() -> Any:
    return catalog.build("text_to_text", vocab=len(words()), sentinels=1)


def train(whose: str, seed: int, steps: int, frames: Sequence[int] = ()) -> dict[int, Any]:
    """The model after its last update, and after each of ``frames``, by the number of updates."""
    with seeded(seed):
        model = t5.build(len(words()) + _objective().specials, SIZES)
    found = dict[int, Any]()

    def keep(state: Any) -> None:
        if state.step in frames:
            found[state.step] = copy.deepcopy(state.model).eval()

    by_fit(
        model, MadeUp(whose), steps, seed=seed, objective=_objective(), callbacks=[keep], **TRAINING
    )
    return {**found, steps: model.eval()}


def speaking(model: TinyTransformer) -> Model:
    """A function from texts to the texts that the model writes, always the likeliest word."""
    ids = Ids.of(len(words()), _objective().options)

    def written(texts: list[str]) -> list[str]:
        rows = [[*encoded(text), ids.end] for text in texts]
        source = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
        real = torch.zeros_like(source, dtype=torch.bool)
        for at, row in enumerate(rows):
            source[at, : len(row)], real[at, : len(row)] = torch.tensor(row), True
        begin = torch.full((len(rows), 1), ids.start)
        said = generate(model, begin, LONGEST, temperature=0.0, source=source, source_padding=real)[
            :, 1:
        ]
        return [_text(row) for row in said.tolist()]

    return written


def _text(row: Sequence[int]) -> str:
    """The words up to the first token that is none, such as the end."""
    kept = list[str]()
    for token in row:
        if token >= len(words()):
            break
        kept.append(words()[token])
    return " ".join(kept)


def measured(seed: int, *, quick: bool = False) -> list[Row]:
    """What the writer of a seed writes, without a filter and with each."""
    writers = train(WRITER, seed, 2 if quick else AFTER[-1], AFTER)
    readers = {name: speaking(_last(name, seed, 2 if quick else READING)) for name in READERS}
    found = [row for name, reader in readers.items() for row in _read(name, reader, seed)]
    chosen = cells(TABLE, ASKED)
    for step, writer in writers.items():
        arm = f"writer, step {step}"
        for name, reader in readers.items():
            pairs = made(chosen, speaking(writer), reader)
            if name == ANSWERS:
                asked = [pair for pair in pairs.pairs if pair.question]
                found += _told(f"{arm}, no filter", asked, len(chosen), seed)
            found += _told(f"{arm}, {name}", pairs.kept, len(chosen), seed)
    return found


def _last(name: str, seed: int, steps: int) -> TinyTransformer:
    model: TinyTransformer = train(name, seed, steps)[steps]
    return model


def _read(name: str, reader: Model, seed: int) -> list[Row]:
    """How a reader answers the questions of the facts, and those about another row."""
    own, strange, answers = list[str](), list[str](), list[str]()
    for cell in cells(TABLE, ASKED):
        for phrase in FACTS.phrases[FACTS.header[cell.column]]:
            for texts, row in ((own, cell.row), (strange, cell.row - 1)):
                question = phrase.format(FACTS.rows[row][0])
                task = PIPELINE.task("answer")
                texts.append(task.source({"question": question, "context": cell.context}))
            answers.append(cell.answer)
    score = PIPELINE.score("answer", reader(own), answers)
    refused = PIPELINE.score("answer", reader(strange), [REFUSES] * len(strange))
    return [
        Row(f"{name}, answers rightly, seed {seed}", round(100 * score.right, 2), "%"),
        Row(f"{name}, refuses a question about another row, seed {seed}",
            round(100 * refused.right, 2), "%"),
    ]  # fmt: skip


def _told(arm: str, pairs: Sequence[Any], asked: int, seed: int) -> list[Row]:
    right = round(100 * precision(SUBJECT, pairs), 2) if pairs else None
    note = "" if pairs else "no pair is left"
    return [
        Row(f"{arm}, yield, seed {seed}", round(100 * len(pairs) / asked, 2), "%"),
        Row(f"{arm}, precision, seed {seed}", right, "%", note=note),
    ]


_BY_SEED = BySeed(lambda seed, quick: measured(seed, quick=quick))
rows, batches = _BY_SEED.rows, _BY_SEED.batches
