"""Overwriting: what is the newest value of a key that was written more than once?

    c 7 a 2 c 4 b 1 a 9 | c 4 a 9

A list of writes, each a key and a value, a separator, then some of the keys: the value that was
written last is the answer. A memory that only adds returns a mixture of all values of a key, and
cannot know which is the newest; one that erases first returns the newest alone.

Variables that are assigned again, as in a program, and the reason for the delta rule in I. Schlag,
K. Irie, J. Schmidhuber, "Linear Transformers Are Secretly Fast Weight Programmers", ICML 2021,
arXiv:2102.11174, section 6.1, where keys that come again have new values.
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
class Overwriting(Task):
    """`rounds` times each of `keys` keys is written, in random order within the round, with one of
    `values` values; then `queries` different keys are asked for.

    Of the keys `once`, other ones in each list, are written in the first round alone, so that old
    values are not always wrong. Tokens are the keys, then the values, then the separator. The list
    of writes decides the split: no list occurs in both splits.
    """

    keys: int = 8
    rounds: int = 2
    once: int = 0
    queries: int = 4
    values: int = 16
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "overwriting"

    def __post_init__(self) -> None:
        self._check_sizes(keys=2, rounds=1, once=0, values=2, queries=1)
        if self.once >= self.keys:
            raise ValueError(
                "Some keys are to be written again, so once should be less than keys, "
                f"got once={self.once} and keys={self.keys}"
            )
        if self.queries > self.keys:
            raise ValueError(
                "Each key is asked for at most once, so queries should be at most keys, "
                f"got queries={self.queries} and keys={self.keys}"
            )
        options = f"keys={self.keys}, rounds={self.rounds} and values={self.values}"
        enough_contents(repeat(self.values, self.writes), options)

    @property
    def vocab(self) -> int:
        return self.keys + self.values + 1

    @property
    def length(self) -> int:
        return 2 * self.writes + 2 * self.queries

    @property
    def writes(self) -> int:
        """How many pairs a list has."""
        return self.keys + (self.rounds - 1) * (self.keys - self.once)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: letters for keys, numbers for values."""
        values = [str(value) for value in range(self.values)]
        return display_names(ids, [*letters(self.keys, "k"), *values, SEPARATOR])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        writes = draw_contents(split, size, generator, self._sample)
        pairs = writes.reshape(size, self.writes, 2)
        same = pairs[:, :, None, 0] == pairs[:, None, :, 0]
        again = np.triu(same, 1).any(axis=2)  # a later pair has the same key
        newest = pairs[~again].reshape(size, self.keys, 2)
        asked = without_repeats(generator, size, self.keys, self.queries)
        questions = np.take_along_axis(newest, asked[:, :, None], axis=1)
        separator = np.full((size, 1), self.keys + self.values)
        parts = [writes, separator, questions.reshape(size, -1)]
        place = np.arange(self.length + 1) - (writes.shape[1] + 1)
        is_answer = (place > 0) & (place % 2 == 1)
        return Batch(*shifted(np.concatenate(parts, axis=1), is_answer))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        size = rows * self.rounds
        keys = without_repeats(generator, size, self.keys, self.keys)
        values = generator.integers(self.values, size=(size, self.keys)) + self.keys
        pairs = np.stack([keys, values], axis=2).reshape(rows, self.rounds, self.keys, 2)
        if self.once:
            first_alone = without_repeats(generator, rows, self.keys, self.once)
            again = (pairs[..., 0, None] != first_alone[:, None, None]).all(axis=3)
            again[:, 0] = True
            pairs = pairs[again]
        return pairs.reshape(rows, -1)

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        asked = [(key, value) for key, value in zip(tokens, labels, strict=True) if value]
        answers = ", ".join(f"the newest value of {key} is {value}" for key, value in asked)
        return Example(
            title=f"{self.keys} keys, written {self.writes} times",
            description=f"Values are numbers. After the separator keys are asked for: {answers}.",
            tokens=tokens,
            labels=labels,
        )
