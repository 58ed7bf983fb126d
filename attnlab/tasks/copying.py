"""Copying: write a list of symbols again, in the same order.

    a c b | a c b

One attention head that attends to a fixed distance back is enough. As a language model the list,
the separator and the list again are one sequence, and only the second list is scored. As an
encoder-decoder the encoder reads the list and the decoder, which starts from the separator, writes
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import (
    SEPARATOR,
    display_names,
    draw_contents,
    enough_contents,
    letters,
    shifted,
)


@dataclass(frozen=True)
class Copying(Task):
    """Repeat `items` random symbols out of `symbols`; the separator is one token more.

    The list decides the split (see `sequences.in_split`): no list occurs in both splits.
    """

    items: int = 16
    symbols: int = 16
    kind: str = "language_model"
    name: ClassVar[str] = "copying"
    order: ClassVar[str] = "in the same order"

    def __post_init__(self) -> None:
        self._check_sizes(items=2, symbols=2)
        check_choice("kind", self.kind, ("language_model", "encoder_decoder"))
        options = f"items={self.items} and symbols={self.symbols}"
        enough_contents(repeat(self.symbols, self.items), options)

    @property
    def vocab(self) -> int:
        return self.symbols + 1

    @property
    def length(self) -> int:
        return self.items if self.kind == "encoder_decoder" else 2 * self.items

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, [*letters(self.symbols), SEPARATOR])

    @staticmethod
    def answer(contents: np.ndarray) -> np.ndarray:
        """What is to be written after the separator, for each row of `contents`."""
        return contents

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        contents = draw_contents(split, size, generator, self._sample)
        separator = np.full((size, 1), self.symbols)
        written = np.concatenate([separator, self.answer(contents)], axis=1)
        if self.kind == "encoder_decoder":
            inputs, targets = shifted(written, np.array(True))
            return Batch(inputs, targets, source=from_numpy(np.ascontiguousarray(contents)))
        is_answer = np.arange(2 * self.items + 1) > self.items
        return Batch(*shifted(np.concatenate([contents, written], axis=1), is_answer))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        return generator.integers(self.symbols, size=(rows, self.items))

    def _describe(self, batch: Batch) -> Example:
        labels = self.tokens(batch.targets[0])
        answer = " ".join(label for label in labels if label)
        return Example(
            title=f"{self.name.capitalize()} {self.items} symbols",
            description=f"After the separator the list is to be written {self.order}: {answer}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=labels,
            source=[] if batch.source is None else self.tokens(batch.source[0]),
        )
