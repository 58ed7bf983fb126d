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

    So each key has the same number of values, and only the last one is right. Tokens are the keys,
    then the values, then the separator. The list of writes decides the split: no list occurs in
    both splits.
    """

    keys: int = 8
    rounds: int = 2
    queries: int = 4
    values: int = 16
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "overwriting"

    def __post_init__(self) -> None:
        self._check_sizes(keys=2, rounds=1, values=2, queries=1)
        if self.queries > self.keys:
            raise ValueError(
                "Each key is asked for at most once, so queries should be at most keys, "
                f"got queries={self.queries} and keys={self.keys}"
            )
        options = f"keys={self.keys}, rounds={self.rounds} and values={self.values}"
        enough_contents(repeat(self.values, self.keys * self.rounds), options)

    @property
    def vocab(self) -> int:
        return self.keys + self.values + 1

    @property
    def length(self) -> int:
        return 2 * self.keys * self.rounds + 2 * self.queries

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: letters for keys, numbers for values."""
        values = [str(value) for value in range(self.values)]
        return display_names(ids, [*letters(self.keys, "k"), *values, SEPARATOR])

    def written(self, inputs: Tensor) -> Tensor:
        """All values of the key that is asked for at each position (b, n, rounds), the oldest
        first; -1 where no key is asked for."""
        b, writes = len(inputs), 2 * self.keys * self.rounds
        keys, values = inputs[:, :writes:2], inputs[:, 1:writes:2]
        found = inputs.new_full((*inputs.shape, self.rounds), -1)
        for place in range(writes + 1, inputs.shape[1], 2):
            own = keys == inputs[:, place, None]
            found[:, place] = values[own].view(b, self.rounds)
        return found

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        writes = draw_contents(split, size, generator, self._sample)
        pairs = writes.reshape(size, self.rounds * self.keys, 2)
        last = pairs[:, -self.keys :]  # every key once
        asked = without_repeats(generator, size, self.keys, self.queries)
        questions = np.take_along_axis(last, asked[:, :, None], axis=1)
        separator = np.full((size, 1), self.keys + self.values)
        parts = [writes, separator, questions.reshape(size, -1)]
        place = np.arange(self.length + 1) - (writes.shape[1] + 1)
        is_answer = (place > 0) & (place % 2 == 1)
        return Batch(*shifted(np.concatenate(parts, axis=1), is_answer))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        size = rows * self.rounds
        keys = without_repeats(generator, size, self.keys, self.keys)
        values = generator.integers(self.values, size=(size, self.keys)) + self.keys
        return np.stack([keys, values], axis=2).reshape(rows, -1)

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        asked = [(key, value) for key, value in zip(tokens, labels, strict=True) if value]
        answers = ", ".join(f"the newest value of {key} is {value}" for key, value in asked)
        return Example(
            title=f"{self.keys} keys, each written {self.rounds} times",
            description=f"Values are numbers. After the separator keys are asked for: {answers}.",
            tokens=tokens,
            labels=labels,
        )
