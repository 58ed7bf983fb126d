"""Pages that link to pages: a question whose answer no single page has.

    which page that assert refers to has the word exception?

The pages are topics of the Python documentation behind `help()`, each a title and a few consecutive
words of its text; the links are the cross references under which `help()` names related topics. A
question names a page and a word. Exactly two pages of the row have the word, and only one of them
can be reached from the named page by ``hops`` links. The other is the end of just such a path that
begins elsewhere. So whoever reads each page alone, with the question, finds two pages and has to
guess, and whoever follows the links knows: Zhao and others, "Transformer-XH", ICLR 2020.
"""

import pydoc
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.structures.text_pairs import TextPairs
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.documentation import topics_by_split

SPECIAL = ("[pad]", "[cls]", "[sep]")
TITLE_WORDS = 3
_FEWEST_PAGES, _MOST_SHARE = 8, 0.6  # a word is known if so many pages have it, and no more
_ATTEMPTS = 20
_VALIDATION_SHARE = 4  # of the pairs of a page that is named and one that answers


class Asked(NamedTuple):
    """One row: the pages, their words, the links, and which page is named and which answers."""

    pages: list[str]
    words: list[list[str]]
    links: list[tuple[int, int]]
    named: int
    word: str
    answer: int


@dataclass(frozen=True)
class LinkedPages(Task):
    """Rows (b, pages · t): page after page of t tokens, and the page that answers (b,).

    Each page begins with [cls], the title that is asked for and the word, [sep], its own title,
    [sep], and its own words. The structure links the [cls] tokens of pages. No pair of a named page
    and an answer is in both splits.

    Args:
        hops: how many links lead from the named page to the answer.
        pages: how many pages a row has.
        words: how many words of its text a page has.
    """

    hops: int = 1
    pages: int = 6
    words: int = 8
    name: ClassVar[str] = "linked_pages"
    kind: ClassVar[str] = "classifier"

    def __post_init__(self) -> None:
        self._check_sizes(hops=1, pages=4, words=1)
        if self.hops > 2:
            raise ValueError(f"hops should be 1 or 2, got {self.hops}")
        fewest, most = 2 * (self.hops + 1), len(documentation().titles)
        if not fewest <= self.pages <= most:
            raise ValueError(
                f"with hops={self.hops} a row has {fewest} to {most} pages, which are two paths of "
                f"links, or all pages of the documentation, got pages={self.pages}"
            )

    @property
    def classes(self) -> int:
        return self.pages

    @property
    def page_length(self) -> int:
        """Tokens t of a page."""
        return 2 * TITLE_WORDS + self.words + 4

    @property
    def length(self) -> int:
        return self.pages * self.page_length

    @property
    def vocab(self) -> int:
        return len(documentation().vocabulary)

    def rows(self, split: str, size: int, seed: int) -> list[Asked]:
        """The rows of `batch`, before they are tokens."""
        size, generator = self._begin(split, size, seed)
        return self._rows(split, size, generator)

    def of_pages(self, batch: Batch) -> tuple[Tensor, TextPairs, GraphBatch]:
        """Each page of a batch by itself: its tokens (b · p, t), which of them are the question's,
        and the links, as graphs (b, p) with one node for each page."""
        t, links = self.page_length, batch.structure
        tokens, padding = batch.inputs.view(-1, t), links.padding.view(-1, t)
        separators = (tokens == SPECIAL.index("[sep]")).cumsum(1)
        in_question = (separators == 0) | ((separators == 1) & (tokens == SPECIAL.index("[sep]")))
        sources, targets = links.sources // t, links.targets // t
        nodes = links.padding[:, ::t]
        linked = replace(links, padding=nodes, sources=sources, targets=targets)
        return tokens, TextPairs(padding, padding & ~in_question), linked

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The words of tokens (n,)."""
        return words_of(ids)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        return self._batch(self._rows(split, size, generator))

    def _rows(self, split: str, size: int, generator: np.random.Generator) -> list[Asked]:
        random = Random(int(generator.integers(2**63)))
        found: list[Asked] = []
        while len(found) < size:
            row = self._row(split, random)
            if row is not None:
                found.append(row)
        return found

    def _row(self, split: str, random: Random) -> Asked | None:
        """One row, or None where what was drawn cannot be completed."""
        own = documentation()
        right, wrong = (random.choice(paths(self.hops, split)) for _ in range(2))
        chosen = list(dict.fromkeys((*right, *wrong)))
        if len(chosen) < 2 * (self.hops + 1) or wrong[-1] in own.reached(right[0], self.hops):
            return None
        others = [title for title in own.titles if title not in chosen]
        chosen += random.sample(others, self.pages - len(chosen))
        random.shuffle(chosen)
        in_titles = {word for title in chosen for word in title_words(title)}
        both = {*own.texts[right[-1]]} & {*own.texts[wrong[-1]]} - in_titles
        if not both:
            return None
        word, words = random.choice(sorted(both)), []
        for title in chosen:
            has = title in (right[-1], wrong[-1])
            window = own.window(title, self.words, word, random, with_word=has)
            if window is None:
                return None
            words.append(window)
        place = {title: i for i, title in enumerate(chosen)}
        links = [(place[a], place[b]) for a in chosen for b in own.links[a] if b in place]
        return Asked(chosen, words, links, place[right[0]], word, place[right[-1]])

    def _batch(self, rows: list[Asked]) -> Batch:
        t, n = self.page_length, self.length
        inputs = torch.zeros(len(rows), n, dtype=torch.long)
        padding = torch.zeros(len(rows), n, dtype=torch.bool)
        known = documentation().vocabulary
        for r, row in enumerate(rows):
            asked = [*title_words(row.pages[row.named]), row.word]
            for p, (title, words) in enumerate(zip(row.pages, row.words, strict=True)):
                text = ["[cls]", *asked, "[sep]", *title_words(title), "[sep]", *words]
                inputs[r, p * t : p * t + len(text)] = torch.tensor([known[word] for word in text])
                padding[r, p * t : p * t + len(text)] = True
        graphs = [Graph(n, [(a * t, b * t) for a, b in row.links]) for row in rows]
        linked = replace(GraphBatch.of(graphs, n), padding=padding)
        return Batch(inputs, torch.tensor([row.answer for row in rows]), padding, structure=linked)

    def _describe(self, batch: Batch) -> Example:
        tokens = self.tokens(batch.inputs[0])
        first = tokens[1 : tokens.index("[sep]")]
        asked, answer = " ".join(first[:-1]), int(batch.targets[0])
        way = "refers to" if self.hops == 1 else "reaches by two links"
        own = tokens[answer * self.page_length :]
        start = own.index("[sep]") + 1
        title = " ".join(own[start : start + own[start:].index("[sep]")])
        return Example(
            title=f"A page that “{asked}” {way}",
            description=f"Which page that “{asked}” {way} has the word “{first[-1]}”? The answer "
            f"is page {answer}, “{title}”. The tokens: {' '.join(tokens)}.",
            tokens=tokens,
            labels=[str(answer)],
        )


# ---- the documentation


class Documentation(NamedTuple):
    """The topics; of each the topics that it refers to, and the known words of its text."""

    titles: list[str]
    links: dict[str, list[str]]
    texts: dict[str, list[str]]
    vocabulary: dict[str, int]

    def reached(self, title: str, hops: int) -> set[str]:
        """The pages to which at most so many links lead."""
        found = {title}
        for _ in range(hops):
            found |= {end for each in found for end in self.links[each]}
        return found

    def window(
        self, title: str, count: int, word: str, random: Random, *, with_word: bool
    ) -> list[str] | None:
        """``count`` consecutive words of a page, with ``word`` or without, or None."""
        text = self.texts[title]
        last = max(len(text) - count, 0)
        if with_word:
            place = random.choice([i for i, each in enumerate(text) if each == word])
            start = min(max(place - random.randrange(count), 0), last)
            return text[start : start + count]
        for _ in range(_ATTEMPTS):
            start = random.randint(0, last)
            if word not in text[start : start + count]:
                return text[start : start + count]
        return None


@lru_cache(maxsize=1)
def documentation() -> Documentation:
    """The topics behind `help()` that refer to another one or are referred to."""
    splits = topics_by_split()
    texts = {**splits["train"], **splits["validation"]}
    named = {**pydoc.Helper.keywords, **pydoc.Helper.topics}
    links: dict[str, set[str]] = {}
    for entry in named.values():
        if isinstance(entry, tuple) and entry[0] in texts:
            ends = {_topic(name, named, texts) for name in entry[1].split()}
            links.setdefault(entry[0], set()).update(ends - {None, entry[0]})  # type: ignore[arg-type]
    titles = sorted(
        {*(t for t in links if links[t]), *(e for ends in links.values() for e in ends)}
    )
    words = {title: re.findall(r"[a-z]{3,}", texts[title].lower()) for title in titles}
    pages = Counter(word for own in words.values() for word in set(own))
    most = _MOST_SHARE * len(titles)
    known = {word for word, count in pages.items() if _FEWEST_PAGES <= count <= most}
    every = [*SPECIAL, *sorted(known | {word for title in titles for word in title_words(title)})]
    return Documentation(
        titles,
        {title: sorted(links.get(title, ())) for title in titles},
        {title: [word for word in words[title] if word in known] for title in titles},
        {word: place for place, word in enumerate(every)},
    )


@lru_cache(maxsize=4)
def paths(hops: int, split: str) -> list[tuple[str, ...]]:
    """The paths of so many links, and no shorter way, whose ends belong to a split."""
    own = documentation()
    found: list[tuple[str, ...]] = [(title,) for title in own.titles]
    for _ in range(hops):
        found = [(*path, end) for path in found for end in own.links[path[-1]]]
    unseen = split == "validation"
    return [
        path
        for path in found
        if path[-1] not in own.reached(path[0], hops - 1)
        and (_hashed(path[0], path[-1]) % _VALIDATION_SHARE == 0) == unseen
    ]


def title_words(title: str) -> list[str]:
    return title.split("-")[:TITLE_WORDS]


def words_of(ids: Tensor | Sequence[int]) -> list[str]:
    """The words of tokens (n,)."""
    words = list(documentation().vocabulary)
    return [words[check_integer("a token", int(i), at_least=0)] for i in ids]


def _topic(name: str, named: Mapping[str, object], texts: Mapping[str, str]) -> str | None:
    """The topic under which `help(name)` looks; None if it looks elsewhere."""
    entry = named.get(name)
    while isinstance(entry, str):
        entry = named.get(entry)
    return entry[0] if isinstance(entry, tuple) and entry[0] in texts else None


def _hashed(named: str, answer: str) -> int:
    return sha256(f"{named} {answer}".encode()).digest()[0]
