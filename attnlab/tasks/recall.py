"""Associative recall: find the value that stood beside a key.

    c 7 a 2 b 7 | a 2

A list of key-value pairs, a separator, then a key again: its value is the answer, and only answers
are scored. The keys of one list are all different, so that the answer is certain. A recurrence
with a small state forgets pairs; attention does not, so this task shows the difference.

The task goes back to J. Ba, G. Hinton, V. Mnih, J. Leibo and C. Ionescu, "Using Fast Weights to
Attend to the Recent Past", NeurIPS 2016, arXiv:1610.06258; with several queries it is the
multi-query form of S. Arora and others, "Zoology", ICLR 2024, arXiv:2312.04927.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import (
    SEPARATOR,
    display_names,
    draw_contents,
    enough_contents,
    letters,
    shifted,
    without_repeats,
)


@dataclass(frozen=True)
class Recall(Task):
    """`pairs` keys (out of `keys`) with their values (out of `values`), then `queries` of the keys.

    Tokens are the keys, then the values, then the separator. A key is asked for at most once. The
    list of pairs decides the split: no list occurs in both splits, whatever is asked about it.
    """

    pairs: int = 8
    queries: int = 1
    keys: int = 16
    values: int = 16
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "recall"

    def __post_init__(self) -> None:
        self._check_sizes(keys=2, values=2, pairs=2, queries=1)
        if self.pairs > self.keys:
            raise ValueError(
                f"The keys of a list are all different, so pairs={self.pairs} needs keys of at "
                f"least {self.pairs}, got keys={self.keys}"
            )
        if self.queries > self.pairs:
            raise ValueError(
                "Each key is asked for at most once, so queries should be at most pairs, "
                f"got queries={self.queries} and pairs={self.pairs}"
            )
        options = f"pairs={self.pairs}, keys={self.keys} and values={self.values}"
        keys = range(self.keys, self.keys - self.pairs, -1)
        enough_contents([*keys, *repeat(self.values, self.pairs)], options)

    @property
    def vocab(self) -> int:
        return self.keys + self.values + 1

    @property
    def length(self) -> int:
        return 2 * self.pairs + 2 * self.queries

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: letters for keys, numbers for values."""
        values = [str(value) for value in range(self.values)]
        return display_names(ids, [*letters(self.keys, "k"), *values, SEPARATOR])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        pairs = draw_contents(split, size, generator, self._sample).reshape(size, self.pairs, 2)
        asked = without_repeats(generator, size, self.pairs, self.queries)
        questions = np.take_along_axis(pairs, asked[:, :, None], axis=1)
        separator = np.full((size, 1), self.keys + self.values)
        parts = [pairs.reshape(size, -1), separator, questions.reshape(size, -1)]
        place = np.arange(self.length + 1) - (2 * self.pairs + 1)
        is_answer = (place > 0) & (place % 2 == 1)
        return Batch(*shifted(np.concatenate(parts, axis=1), is_answer))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        keys = without_repeats(generator, rows, self.keys, self.pairs)
        values = generator.integers(self.values, size=(rows, self.pairs)) + self.keys
        return np.stack([keys, values], axis=2).reshape(rows, -1)

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        asked = [(key, value) for key, value in zip(tokens, labels, strict=True) if value]
        answers = ", ".join(f"beside {key} stood {value}" for key, value in asked)
        return Example(
            title=f"Recalling {self.queries} of {self.pairs} pairs",
            description=f"Values are numbers. After the separator a key is asked for: {answers}.",
            tokens=tokens,
            labels=labels,
        )
