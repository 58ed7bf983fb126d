"""Induction: … A B … A → B.

    c a d b  c a d b  c a d b

Random symbols, then the same symbols again and again. When A comes for the second time, its first
occurrence shows that B follows. A transformer learns this with two heads in two layers (one attends
to the previous token, the other to the token after the last occurrence of the current token); one
layer is not enough.

The length of the repeated part differs from row to row, so that looking back a fixed distance does
not help, and its symbols are all different, so that B is certain. Only positions whose answer is
certain are scored. There is no separator: the repetition itself marks the end of the first part.

C. Olsson and others, "In-context Learning and Induction Heads", Transformer Circuits Thread 2022,
arXiv:2209.11895.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import (
    display_names,
    draw_contents,
    enough_contents,
    letters,
    shifted,
    without_repeats,
)


@dataclass(frozen=True)
class Induction(Task):
    """`length` positions of a repeated run of different symbols.

    The run is a quarter to a half of `length` long. The whole sequence decides the split: none
    occurs in both splits.
    """

    length: int = 64
    symbols: int = 64
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "induction"

    def __post_init__(self) -> None:
        self._check_sizes(length=8, symbols=2)
        if self.symbols < self._longest:
            raise ValueError(
                "The repeated run has up to length // 2 symbols, all different, so "
                f"length={self.length} needs symbols of at least {self._longest}, "
                f"got symbols={self.symbols}"
            )
        options = f"length={self.length} and symbols={self.symbols}"
        enough_contents(range(self.symbols, self.symbols - self._shortest, -1), options)

    @property
    def vocab(self) -> int:
        return self.symbols

    @property
    def _shortest(self) -> int:
        return self.length // 4

    @property
    def _longest(self) -> int:
        return self.length // 2

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, letters(self.symbols))

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        sequence = draw_contents(split, size, generator, self._sample)
        run = 1 + (sequence[:, 1:] == sequence[:, :1]).argmax(
            axis=1
        )  # distance to the first repeat
        is_certain = np.arange(self.length + 1) > run[:, None]
        return Batch(*shifted(sequence, is_certain))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        symbols = without_repeats(generator, rows, self.symbols, self._longest)
        run = generator.integers(self._shortest, self._longest + 1, size=(rows, 1))
        return np.take_along_axis(symbols, np.arange(self.length + 1) % run, axis=1)

    def _describe(self, batch: Batch) -> Example:
        labels = self.tokens(batch.targets[0])
        run = labels.index(next(label for label in labels if label))
        return Example(
            title=f"A run of {run} symbols, repeated",
            description=(
                f"The first {run} symbols are random and all different; then they repeat. From the "
                "first repeated symbol on, what followed it the first time is the answer."
            ),
            tokens=self.tokens(batch.inputs[0]),
            labels=labels,
        )
