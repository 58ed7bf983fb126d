"""Gist: the majority of a distant stretch of symbols, and single symbols of it.

    <s> ● ○ ○ ● ○ … the old of … most? 7? 2?   →   ○ ● ○

A stretch of two kinds of symbols at the beginning, then random words, then questions about the
stretch. The answer to each is ● or ○. ``most?`` asks which of the two occurred more often: the
gist, which depends on all symbols a little and on none alone. ``7?`` asks for the seventh symbol:
one exact token. So the same model on the same text shows what a summary keeps and what it loses.
A random guess is right half of the time; the majority symbol as the answer to every question is
right a little more often (``by_gist``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import comb
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, enough_contents, without_repeats

START, MOST, SYMBOLS = "<s>", "most?", ("●", "○")
_WORDS = ("the", "and", "of", "a", "in", "to", "river", "stone", "old", "bird", "over", "under")


@dataclass(frozen=True)
class Gist(Task):
    """A start, `stretch` symbols, words, and `questions` at the end: `most?`, then places.

    Tokens are the two symbols, the start, `most?`, a question for each place, then the words. No
    place is asked for twice. The stretch decides the split: none occurs in both splits.
    """

    length: int = 64
    stretch: int = 31
    questions: int = 9
    words: int = 8
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "gist"

    def __post_init__(self) -> None:
        self._check_sizes(length=16, stretch=3, questions=2, words=1)
        if self.stretch % 2 == 0:
            raise ValueError(
                f"stretch should be odd, so that one symbol is in the majority, got {self.stretch}"
            )
        if self.questions > self.stretch + 1:
            raise ValueError(
                "No place is asked for twice, so questions should be at most stretch + 1, "
                f"got questions={self.questions} and stretch={self.stretch}"
            )
        if self.gap < 0:
            raise ValueError(
                f"A start, {self.stretch} symbols and {self.questions} questions do not fit into "
                f"length={self.length}"
            )
        enough_contents(repeat(2, self.stretch), f"stretch={self.stretch}")

    @property
    def gap(self) -> int:
        """How many words stand between the stretch and the questions."""
        return self.length - 1 - self.stretch - self.questions

    @property
    def vocab(self) -> int:
        return 4 + self.stretch + self.words

    @property
    def by_gist(self) -> float:
        """The expected share of places that hold the majority symbol."""
        half = self.stretch // 2
        return 0.5 + comb(2 * half, half) / 2 ** (2 * half + 1)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: `7?` asks for the seventh symbol."""
        places = (f"{place}?" for place in range(1, self.stretch + 1))
        spare = (f"w{place}" for place in range(len(_WORDS), self.words))
        return display_names(ids, [*SYMBOLS, START, MOST, *places, *_WORDS[: self.words], *spare])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        stretch = draw_contents(split, size, generator, self._sample)
        words = self.vocab - self.words + generator.integers(self.words, size=(size, self.gap))
        asked = without_repeats(generator, size, self.stretch, self.questions - 1)
        column = np.ones((size, 1), dtype=np.int64)
        inputs = np.concatenate([2 * column, stretch, words, 3 * column, 4 + asked], axis=1)
        most = (2 * stretch.sum(axis=1, keepdims=True) > self.stretch).astype(np.int64)
        answers = np.concatenate([most, np.take_along_axis(stretch, asked, axis=1)], axis=1)
        targets = np.full_like(inputs, UNSCORED)
        targets[:, -self.questions :] = answers
        return Batch(from_numpy(inputs), from_numpy(targets))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        return generator.integers(2, size=(rows, self.stretch))

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        first = len(tokens) - self.questions
        most, asked, there = labels[first], tokens[first + 1], labels[first + 1]
        return Example(
            title=f"A stretch of {self.stretch}, and questions {self.gap} words later",
            description=(
                f"{self.length} tokens: {self.stretch} symbols, {self.gap} words, "
                f"{self.questions} questions. More often than not it was {most}; {asked} asks for "
                f"one symbol, {there}."
            ),
            tokens=tokens,
            labels=labels,
        )
