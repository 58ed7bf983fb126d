"""Word order: is this sentence as it was written, or have its words changed places?

    if the sequence is empty the loop ends         →  as written
    if the loop is empty the sequence ends         →  changed

Sentences of the Python documentation, in lower case and without punctuation, so that neither a
capital nor a full stop says where a sentence begins or ends. Half of them are changed:
``"shuffle"`` puts all words into a random order, ``"swap"`` exchanges two. Both classes hold the
same words, so what does not know the order is right half of the time. The words that are frequent
in the training text have a token of their own, all others share one. Training and validation
sentences come from different families of topics (``attnlab.tasks.documentation``).

Wang et al. (ICLR 2020) test complex word embeddings on sentence classification, where order matters
little; this task isolates what they are made for.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.documentation import topics_by_split
from attnlab.tasks.sequences import display_names

CLASSES = ("as written", "changed")
FILLER, RARE = "·", "?"
_SHORTEST = 6
_WORD = re.compile(r"[a-z]+(?:['’-][a-z]+)*")
_CODE = re.compile(r"::=|>>>|\*{3}|={3}|-{3}|^ {6}", re.MULTILINE)  # and headings, and tables
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")


@dataclass(frozen=True)
class WordOrder(Task):
    """Sentences of 6 to `length` words; of longer ones, `length` consecutive words.

    Tokens: 0 fills short sentences up (`padding` marks it), 1 is every rare word, then the `words`
    most frequent ones. At most a third of a sentence is rare.

    Args:
        change: "shuffle" or "swap".
        length: the longest sentence, in words.
        words: how many words have a token of their own.
    """

    change: str = "shuffle"
    length: int = 16
    words: int = 1000
    kind: ClassVar[str] = "classifier"
    name: ClassVar[str] = "word_order"

    def __post_init__(self) -> None:
        check_choice("change", self.change, ("shuffle", "swap"))
        self._check_sizes(length=_SHORTEST, words=50)
        known = len(_frequent_words())
        if self.words > known:
            raise ValueError(
                f"words should be at most {known:,}, all different ones of the training sentences, "
                f"got {self.words:,}"
            )

    @property
    def vocab(self) -> int:
        return 2 + self.words

    @property
    def classes(self) -> int:
        return len(CLASSES)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The words; `?` for a rare one and `·` where the sentence has ended."""
        return display_names(ids, [FILLER, RARE, *_frequent_words()[: self.words]])

    def encode(self, sentence: str) -> Tensor:
        """The tokens (n,) of the words of a sentence."""
        if not isinstance(sentence, str):
            raise TypeError(f"encode takes a str, got a {type(sentence).__name__}")
        numbers = _numbers(self.words)
        found = [numbers.get(word, 1) for word in _words(sentence)]
        if not found:
            raise ValueError(f"there is no word in {sentence!r}")
        return from_numpy(np.array(found))

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        sentences = _sentences(split, self.words)
        inputs = np.zeros((size, self.length), dtype=np.int64)
        targets = generator.integers(2, size=size)
        for row, chosen in enumerate(generator.integers(len(sentences), size=size)):
            words = _stretch(sentences[chosen], self.length, generator)
            if targets[row]:
                words = _changed(words, self.change, generator)
            inputs[row, : len(words)] = words
        return Batch(from_numpy(inputs), from_numpy(targets), from_numpy(inputs > 0))

    def _describe(self, batch: Batch) -> Example:
        assert batch.padding is not None
        shown = self.tokens(batch.inputs[0][batch.padding[0]])
        label = CLASSES[int(batch.targets[0])]
        return Example(
            title=f"{len(shown)} words, {label}",
            description=f"Are these words in the order in which they were written? The answer is "
            f"'{label}'. {' '.join(shown)}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=[label],
        )


def _stretch(sentence: np.ndarray, length: int, generator: np.random.Generator) -> np.ndarray:
    """At most `length` consecutive words, not all of them equal."""
    while True:
        start = generator.integers(max(len(sentence) - length, 0) + 1)
        words = sentence[start : start + length]
        if (words != words[0]).any():
            return words


def _changed(words: np.ndarray, change: str, generator: np.random.Generator) -> np.ndarray:
    """The words in another order, one that can be told from the first."""
    while True:
        order = np.arange(len(words))
        if change == "shuffle":
            order = generator.permutation(len(words))
        else:
            pair = generator.choice(len(words), size=2, replace=False)
            order[pair] = order[pair[::-1]]
        if (words[order] != words).any():
            return words[order]


# ---- sentences


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


@lru_cache(maxsize=2)
def _texts(split: str) -> tuple[tuple[str, ...], ...]:
    """The sentences of the prose, each as its words: once, and for validation only new ones."""
    found: dict[tuple[str, ...], None] = {}
    known = set(_texts("train")) if split == "validation" else set()
    for topic in topics_by_split()[split].values():
        for paragraph in re.split(r"\n\s*\n", topic):
            if _CODE.search(paragraph):
                continue
            for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
                words = tuple(_words(sentence))
                if len(words) >= _SHORTEST and sentence[-1] in ".!?:;":
                    found.setdefault(words)
    return tuple(words for words in found if words not in known)


@lru_cache(maxsize=1)
def _frequent_words() -> list[str]:
    """The words of the training sentences, the most frequent first."""
    counts = Counter(word for words in _texts("train") for word in words)
    return sorted(counts, key=lambda word: (-counts[word], word))


@lru_cache(maxsize=8)
def _numbers(words: int) -> dict[str, int]:
    return {word: 2 + place for place, word in enumerate(_frequent_words()[:words])}


@lru_cache(maxsize=8)
def _sentences(split: str, words: int) -> list[np.ndarray]:
    """The tokens of each sentence of which at most a third are rare."""
    numbers = _numbers(words)
    rows = [[numbers.get(word, 1) for word in sentence] for sentence in _texts(split)]
    return [np.array(row) for row in rows if 3 * row.count(1) <= len(row)]
