"""Lookup: a text gives values to keys; which value was given to a key?

    <s> the c=1 river a=3 stone … old | a? c? c?   →   3 1 1

This is associative recall in its easiest form: a key and its value are one token, and so is the
question for a key. The task needs one step, from the question to the pair with the same key, and
no positions: the pairs stand in any order, among random words. In `attnlab.tasks.recall` key and
value are two tokens, so that a model must first find out which key stood before a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import SEPARATOR, display_names, draw_contents, without_repeats

START = "<s>"


@dataclass(frozen=True)
class Lookup(Task):
    """`length` positions: a start, a text of words and pairs, a separator, and `questions`.

    One position in `every` is a pair, with different keys. Tokens are the values, then the pairs
    (all values of the first key, then of the second, …), then one question for each key, then
    words, start and separator. The text and the questions decide the split.
    """

    length: int = 32
    questions: int = 8
    keys: int = 128
    values: int = 4
    words: int = 32
    every: int = 4
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "lookup"

    def __post_init__(self) -> None:
        self._check_sizes(length=16, questions=1, keys=4, values=2, words=2, every=4)
        if self.pairs > self.keys:
            raise ValueError(
                f"One position in {self.every} is a pair and the keys are all different, so "
                f"length={self.length} needs keys of at least {self.pairs}, got keys={self.keys}"
            )
        if self.questions > self.length // 2:
            raise ValueError(
                "At most half of the positions are questions, so questions should be at most "
                f"{self.length // 2} with length={self.length}, got questions={self.questions}"
            )

    @property
    def pairs(self) -> int:
        """How many pairs the text has."""
        return self.length // self.every

    @property
    def vocab(self) -> int:
        return self.values + self.keys * (self.values + 1) + self.words + 2

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: 3 is a value, k5=3 a pair, k5? a question."""
        pairs = [f"k{key}={value}" for key in range(self.keys) for value in range(self.values)]
        asked = [f"k{key}?" for key in range(self.keys)]
        words = [f"w{word}" for word in range(self.words)]
        values = [str(value) for value in range(self.values)]
        return display_names(ids, [*values, *pairs, *asked, *words, START, SEPARATOR])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        inputs = draw_contents(split, size, generator, self._sample)
        text, asked = inputs[:, : -self.questions], inputs[:, -self.questions :] - self._asked
        key, value = np.divmod(text - self.values, self.values)
        of_key = (key[:, None] == asked[:, :, None]) & (text < self._asked)[:, None]
        targets = np.full_like(inputs, UNSCORED)
        targets[:, -self.questions :] = (of_key * value[:, None]).sum(2)
        return Batch(from_numpy(inputs), from_numpy(targets))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        width = self.length - 2 - self.questions
        keys = without_repeats(generator, rows, self.keys, self.pairs)
        given = self.values * (keys + 1) + generator.integers(self.values, size=keys.shape)
        first_word = self._asked + self.keys
        text = first_word + generator.integers(self.words, size=(rows, width))
        places = without_repeats(generator, rows, width, self.pairs)
        np.put_along_axis(text, places, given, axis=1)
        chosen = generator.integers(self.pairs, size=(rows, self.questions))
        asked = self._asked + np.take_along_axis(keys, chosen, axis=1)
        start, separator = (np.full((rows, 1), self.vocab - back) for back in (2, 1))
        return np.concatenate([start, text, separator, asked], axis=1)

    @property
    def _asked(self) -> int:
        """The token of the question for the first key."""
        return self.values * (self.keys + 1)

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        asked = [(token, label) for token, label in zip(tokens, labels, strict=True) if label]
        answers = ", ".join(f"{token} {label}" for token, label in asked)
        return Example(
            title=f"Looking up {self.questions} values among {self.pairs} pairs",
            description=f"Each pair is one token, and so is the question for its key: {answers}.",
            tokens=tokens,
            labels=labels,
        )
