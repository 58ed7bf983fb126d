"""Sentences: text without labels, of which some is hidden or the next word is asked.

    the farmers near my house say that this dog barks

The sentences come from ``attnlab.tasks.english``, a small part of English. They are a fixed corpus:
the same few thousand sentences, however often they are read. What a model learns from them is which
words go together: verbs agree with the nouns that they belong to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS, Batch
from attnlab.tasks.english import ENGLISH
from attnlab.tasks.sequences import display_names, in_split, next_words

DRAWN, DEPTH, FEWEST = 4000, 8, 6
"""How many sentences are drawn for the corpus, the most nodes above a word, the least ``words``."""
_WORDS = ENGLISH.vocabulary


@dataclass(frozen=True)
class Sentences:
    """Sentences of at most `words` words; each target is the next word.

    The words decide the split: no sentence occurs in both.
    """

    words: int = 16
    name: ClassVar[str] = "sentences"
    kind: ClassVar[str] = "language_model"

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", check_integer("words", self.words, at_least=FEWEST))

    @property
    def vocab(self) -> int:
        return len(_WORDS)

    @property
    def length(self) -> int:
        return max(map(len, corpus(self.words, "train"))) - 1

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The word of each token."""
        return display_names(ids, _WORDS)

    def encode(self, text: str) -> Tensor:
        """The tokens (n,) of a text; a ValueError for a word that the grammar does not have."""
        words = text.split()
        for word in words:
            check_choice("word", word, _WORDS)
        return torch.tensor([_WORDS.index(word) for word in words], dtype=torch.int64)

    def model_options(self) -> dict[str, Any]:
        """The keyword arguments that a `TinyTransformer` for this task needs."""
        return {
            "vocab": self.vocab, "kind": self.kind, "classes": None, "features": None,
            "max_len": self.length,
        }  # fmt: skip

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Rows (b, n) of sentences, the shorter ones filled up with padding."""
        known = corpus(self.words, split)
        chosen = np.random.default_rng([3, seed]).integers(len(known), size=size)
        return next_words([((), known[i]) for i in chosen])


@lru_cache(maxsize=8)
def corpus(words: int, split: str) -> tuple[tuple[int, ...], ...]:
    """All sentences of a split as tokens, in the order in which they were drawn, each once."""
    check_choice("split", split, SPLITS)
    place = {word: index for index, word in enumerate(_WORDS)}
    found = {
        row: None
        for row in (tuple(place[word] for word in sentence) for sentence in _drawn())
        if len(row) <= words
    }
    padded = np.zeros((len(found), words), dtype=np.int64)
    for i, row in enumerate(found):
        padded[i, : len(row)] = [1 + word for word in row]
    return tuple(row for row, own in zip(found, in_split(padded, split), strict=True) if own)


@lru_cache(maxsize=1)
def _drawn() -> tuple[tuple[str, ...], ...]:
    generator = np.random.default_rng(0)
    trees = (ENGLISH.sample(generator, depth=DEPTH) for _ in range(DRAWN))
    return tuple(tuple(leaf.label for leaf in tree.leaves()) for tree in trees)
