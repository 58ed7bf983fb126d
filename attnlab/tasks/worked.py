"""Worked: what the tasks share whose answers are computed in steps that are known.

Each question has a `Computation` (`attnlab.structures.computation`), whose nodes are values. With
``scratchpad=True`` all of its computed values are written before the answer is complete, in an
order in which each follows from earlier ones; otherwise the answer alone is written. A value takes
as many tokens as its place in the graph says, whatever it is, so that what a model has written can
be read back, value by value, and each step be judged (`Computation.judged`).

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, compare question-answer pairs with question-scratchpad pairs.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.core.options import check_value
from attnlab.structures.computation import Computation
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, next_words, token_numbers

Question = tuple[int, ...]


@dataclass(frozen=True)
class Worked(Task):
    """A language model reads a question and writes the answer, with ``scratchpad`` each step."""

    scratchpad: bool = field(default=False, kw_only=True)
    kind: ClassVar[str] = "language_model"
    names: ClassVar[tuple[str, ...]]
    """The display name of each token."""

    @property
    def vocab(self) -> int:
        return len(self.names)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, self.names)

    @abstractmethod
    def computation(self, question: Sequence[int]) -> Computation:
        """The graph of the answer to a question."""

    @abstractmethod
    def asked(self, question: Sequence[int]) -> list[int]:
        """The tokens of a question, up to the sign after which its answer is written."""

    @abstractmethod
    def answer(self, made: Computation) -> list[str]:
        """The nodes of the graph that are the answer, in the order in which they are written."""

    @abstractmethod
    def spelled(self, made: Computation, node: str, value: int) -> list[int]:
        """The tokens of a value at a node of the graph, always as many."""

    @abstractmethod
    def _read(self, made: Computation, node: str, tokens: Sequence[int]) -> int | None:
        """The value that these tokens spell at a node; None where they spell none."""

    @abstractmethod
    def _question(self, contents: Sequence[int]) -> Question:
        """The question in a row of ``_sample``, which fills shorter ones up."""

    @abstractmethod
    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        """Random rows, each a question."""

    @abstractmethod
    def _deciding(self, rows: np.ndarray) -> np.ndarray:
        """What decides the split of each row: the question alone, whatever the options are, with
        zeros behind it."""

    def written(self, made: Computation) -> list[str]:
        """The nodes whose values are written, in order."""
        answer = self.answer(made)
        steps = [node for node in made.computed if node not in answer] if self.scratchpad else []
        return [*steps, *answer]

    def questions(self, split: str, size: int, seed: int) -> list[Question]:
        """The questions of the batch that the same arguments make."""
        return self._drawn(split, *self._begin(split, size, seed))

    def of(self, questions: Sequence[Sequence[int]]) -> Batch:
        """The batch of these questions, in their order; shorter rows are filled up behind."""
        if not len(questions):
            raise ValueError("questions should be a list of one question at least, got none")
        return next_words([(self.asked(each), self._solved(each)) for each in questions])

    def stated(self, question: Sequence[int], tokens: Tensor | Sequence[int]) -> dict[str, int]:
        """The value of each node that is written, in the tokens of an answer.

        ``tokens`` are those after the question. A value whose tokens spell none is None, as are
        those that are missing when the answer ends.
        """
        made, numbers = self.computation(question), token_numbers(tokens)
        found: dict[str, int] = {}
        for node in self.written(made):
            width = len(self.spelled(made, node, made.steps[node].value))
            own, numbers = numbers[:width], numbers[width:]
            value = self._read(made, node, own) if len(own) == width else None
            found[node] = value  # type: ignore[assignment]
        return found

    def right(self, question: Sequence[int], stated: Mapping[str, int]) -> bool:
        """Whether the answer is right, whatever the steps before it."""
        made = self.computation(question)
        return all(stated[node] == made.steps[node].value for node in self.answer(made))

    def _solved(self, question: Sequence[int]) -> list[int]:
        made = self.computation(question)
        return [
            token
            for node in self.written(made)
            for token in self.spelled(made, node, made.steps[node].value)
        ]

    def _drawn(self, split: str, size: int, generator: np.random.Generator) -> list[Question]:
        rows = draw_contents(split, size, generator, self._sample, self._deciding)
        return [self._question(row) for row in rows.tolist()]

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        return self.of(self._drawn(split, size, generator))

    def _check_scratchpad(self) -> None:
        check_value("scratchpad", self.scratchpad, bool)

    def _described(self, batch: Batch, title: str, sentence: str) -> Example:
        """The example of a row; ``sentence`` has a place for the question and for the answer."""
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        began = next(place for place, label in enumerate(labels) if label)
        return Example(
            title=title,
            description=sentence.format(" ".join(tokens[: began + 1]), " ".join(labels[began:])),
            tokens=tokens,
            labels=labels,
        )
