"""Documents that cite documents: which of two does a document refer to?

The documents are topics of the Python documentation behind `help()`, each its title and the first
words of its text; a topic cites those that `help()` names as related. A row holds three of them:
one that cites, and two of which it cites one. The other is drawn at random, or it is a hard one: a
topic that is cited by one the first cites, and not by the first itself (Cohan and others,
"SPECTER", ACL 2020). Whether the cited one stands first or second is drawn, too.

No pair of topics, in whatever direction it is linked, is in both splits. The texts are: all topics
are known, and the links between them are asked.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.options import check_share
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.linked_pages import (
    TITLE_WORDS,
    documentation,
    title_words,
    words_of,
)

_VALIDATION_SHARE = 4  # every fourth pair of topics


class Triplet(NamedTuple):
    """A topic, one that it cites, and one that it does not."""

    citing: str
    cited: str
    other: str


@dataclass(frozen=True)
class Citations(Task):
    """Rows (b, 3 · t): three documents of t tokens, and which of the last two the first cites (b,).

    A document is [cls], its title, [sep] and its words.

    Args:
        words: how many words of its text a document has.
        hard: the share of the rows whose other document is cited by one that the first cites, where
            there is such a one.
    """

    words: int = 24
    hard: float = 0.4
    name: ClassVar[str] = "citations"
    kind: ClassVar[str] = "classifier"
    classes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._check_sizes(words=1)
        check_share("hard", self.hard)

    @property
    def document_length(self) -> int:
        """Tokens t of a document."""
        return TITLE_WORDS + self.words + 2

    @property
    def length(self) -> int:
        return 3 * self.document_length

    @property
    def vocab(self) -> int:
        return len(documentation().vocabulary)

    def documents(self) -> tuple[Int[Tensor, "p t"], Bool[Tensor, "p t"]]:
        """The tokens of all topics, in the order of their titles, and which of them are real."""
        known, own = documentation().vocabulary, documentation()
        tokens = torch.zeros(len(own.titles), self.document_length, dtype=torch.long)
        real = torch.zeros_like(tokens, dtype=torch.bool)
        for place, title in enumerate(own.titles):
            text = ["[cls]", *title_words(title), "[sep]", *own.texts[title][: self.words]]
            tokens[place, : len(text)] = torch.tensor([known[word] for word in text])
            real[place, : len(text)] = True
        return tokens, real

    def tokens(self, ids: Tensor) -> list[str]:
        """The words of tokens (n,)."""
        return words_of(ids)

    def triplets(self, split: str, size: int, seed: int) -> list[Triplet]:
        """The rows of `batch`, before they are tokens."""
        size, generator = self._begin(split, size, seed)
        return self._triplets(split, size, generator)

    def _triplets(self, split: str, size: int, generator: np.random.Generator) -> list[Triplet]:
        pairs, found = citations(split), []
        for _ in range(size):
            citing, cited = pairs[generator.integers(len(pairs))]
            hard, easy = others(citing)
            among = hard if hard and generator.random() < self.hard else easy
            found.append(Triplet(citing, cited, among[generator.integers(len(among))]))
        return found

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        rows = self._triplets(split, size, generator)
        second = torch.from_numpy(generator.integers(2, size=size))
        place = {title: i for i, title in enumerate(documentation().titles)}
        order = [
            (row.citing, *((row.other, row.cited) if swap else (row.cited, row.other)))
            for row, swap in zip(rows, second.tolist(), strict=True)
        ]
        chosen = torch.tensor([[place[title] for title in row] for row in order])
        tokens, real = (x[chosen].flatten(1) for x in self.documents())
        return Batch(tokens, second, real)

    def _describe(self, batch: Batch) -> Example:
        t, answer = self.document_length, int(batch.targets[0])
        tokens = self.tokens(batch.inputs[0])
        names = []
        for start in range(0, 3 * t, t):
            document = tokens[start : start + t]
            names.append(" ".join(document[1 : document.index("[sep]")]))
        citing, cited, other = names[0], names[1 + answer], names[2 - answer]
        return Example(
            title=f"What “{citing}” refers to",
            description=f"Which of two documents does “{citing}” refer to? The answer is number "
            f"{answer}, “{cited}”, and not “{other}”. The tokens: {' '.join(tokens)}.",
            tokens=tokens,
            labels=[str(answer)],
        )


# ---- the links


@lru_cache(maxsize=2)
def citations(split: str) -> list[tuple[str, str]]:
    """The topics that cite and what they cite, of a split."""
    own, unseen = documentation(), split == "validation"
    pairs = [(title, end) for title in own.titles for end in own.links[title]]
    return [pair for pair in pairs if (_hashed(*pair) % _VALIDATION_SHARE == 0) == unseen]


@cache
def others(citing: str) -> tuple[list[str], list[str]]:
    """The topics not linked with this one, in either direction: those that what it cites cites, and
    all of them."""
    own = documentation()
    linked = {citing, *own.links[citing], *(t for t in own.titles if citing in own.links[t])}
    two_links = {end for cited in own.links[citing] for end in own.links[cited]}
    every = [title for title in own.titles if title not in linked]
    return [title for title in every if title in two_links], every


def reciprocal_rank(vectors: Float[Tensor, "p d"], split: str = "validation") -> float:
    """The mean, over the citations of a split, of 1 / the place of the cited topic among those that
    are not linked, by the distance of their vectors. Ties count half.

    vectors: one for each topic, in the order of ``documents``.
    """
    place = {title: i for i, title in enumerate(documentation().titles)}
    exact = vectors.detach().cpu().double()
    apart = torch.linalg.vector_norm(exact[:, None] - exact, dim=-1)
    found = []
    for citing, cited in citations(split):
        among = apart[place[citing], [place[title] for title in others(citing)[1]]]
        own = apart[place[citing], place[cited]]
        before = (among < own).sum() + 0.5 * (among == own).sum()
        found.append(1 / (1 + before.item()))
    return sum(found) / len(found)


def bags_of_words(words: int | None = None) -> Float[Tensor, "p v"]:
    """How often each topic has each word, with its title, weighted by the rarity of the word and of
    length 1; of all its text, or of its first words."""
    own = documentation()
    counts = torch.zeros(len(own.titles), len(own.vocabulary), dtype=torch.float64)
    for place, title in enumerate(own.titles):
        for word in [*title_words(title), *own.texts[title][:words]]:
            counts[place, own.vocabulary[word]] += 1
    rarity = (len(counts) / (counts > 0).sum(0).clamp(min=1)).log()
    return torch.nn.functional.normalize(counts * rarity, dim=-1)


def _hashed(one: str, other: str) -> int:
    return sha256(" ".join(sorted((one, other))).encode()).digest()[0]
