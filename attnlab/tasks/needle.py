"""Needle: questions about one key in a long text, at positions near it, far from it and at the end.

    <s> the river 7 and ? stone … the ? over old … bird ?   →   7 … 7 … 7

All words are random; one of them is a key, somewhere in the first half. Question marks stand at
random places after it, and at the end; only they are scored. The answer is the key itself, so the
task measures the receptive field. Where a model's pattern does not connect the key with a question,
the model can only guess, with one chance in ``keys``, however well it is trained.

The name comes from the needle in a haystack of G. Kamradt's test of 2023, which hides a sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents

START, ASK = "<s>", "?"
_WORDS = [
    *("the", "and", "of", "a", "in", "to", "river", "stone", "old", "bird", "over", "under"),
    *("house", "tree", "cold", "wind", "light", "road", "small", "sea", "then", "green"),
    *("hill", "down", "by", "night", "rain", "slow", "field", "moon", "cloud", "long"),
]


@dataclass(frozen=True)
class Needle(Task):
    """`length` positions: a start, random words of which one in the first half is a key, and `?`.

    After the key every `every`-th position, on average, is a question as well. Tokens are the keys,
    then the words, then the start and the question mark. The whole text decides the split: none
    occurs in both splits.
    """

    length: int = 256
    keys: int = 16
    words: int = 32
    every: int = 8
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "needle"

    def __post_init__(self) -> None:
        self._check_sizes(length=16, keys=2, words=2, every=2)

    @property
    def vocab(self) -> int:
        return self.keys + self.words + 2

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: numbers for keys, words for the rest."""
        spare = (f"w{place}" for place in range(len(_WORDS), self.words))
        words = [*_WORDS[: self.words], *spare]
        return display_names(ids, [*map(str, range(self.keys)), *words, START, ASK])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        text = draw_contents(split, size, generator, self._sample)
        key = text.min(axis=1, keepdims=True)  # keys come before all other tokens
        start = np.full((size, 1), self.vocab - 2)
        inputs = np.concatenate([start, text], axis=1)
        targets = np.where(inputs == self.vocab - 1, key, UNSCORED)
        return Batch(from_numpy(inputs), from_numpy(targets))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        size = (rows, self.length - 1)
        text = self.keys + generator.integers(self.words, size=size)
        places = generator.integers(self.length // 2 - 1, size=(rows, 1))
        after = np.arange(self.length - 1) > places
        asks = after & (generator.random(size) < 1 / self.every)
        asks[:, -1] = True
        text[asks] = self.vocab - 1
        np.put_along_axis(text, places, generator.integers(self.keys, size=(rows, 1)), axis=1)
        return text

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        place = tokens.index(labels[-1])
        return Example(
            title=f"A needle {self.length - 1 - place} tokens before the question",
            description=(
                f"{self.length} tokens. All are random words but one: at position {place} stands "
                f"{labels[-1]}, and every question mark asks for it, the last one at the end."
            ),
            tokens=tokens,
            labels=labels,
        )
