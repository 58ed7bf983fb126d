"""Ditto: most tokens follow from the one before them, and only a mark asks for one further back.

    <s> c f a ″ a d b ″ b

The text is a Markov chain: after a letter comes another one, drawn from probabilities that depend
on this letter alone, so nothing else in the text helps to predict it. Sometimes the mark ″ comes
instead, which says "the same again": after it the letter before it is repeated, with certainty. An
attention layer is of use at the marks alone. At every letter it has nothing to attend to, and what
it reads all the same disturbs probabilities that would be right without it.

A start token <s> may stand at the beginning of each text, at a random place, or nowhere. It says
nothing about any other token.

The idea is that of T. Guo, D. Pai, Y. Bai, J. Jiao, M. Jordan and S. Mei, "Active-Dormant Attention
Heads: Mechanistically Demystifying Extreme-Token Phenomena in LLMs", 2024, arXiv:2410.13835, whose
task has several such marks, which are letters of the chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, from_numpy

from attnlab.core.arguments import check_flag
from attnlab.core.suggest import check_choice
from attnlab.core.visibility import Visibility
from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, enough_contents, letters

MARK, START = "″", "<s>"
_STARTS, _SCORED = ("first", "random", "none"), ("all", "marks")


@dataclass(frozen=True)
class Ditto(Task):
    """`length` positions; after a letter comes a mark once in `every` times, else another letter.

    Tokens are the `symbols` letters, then the mark, then the start. Each target is the next letter
    or mark: what stands before a start token is asked for what comes after it, and the start token
    itself is not scored. The whole text decides the split.

    start: where the start token stands: "first", at a "random" place, or in no text ("none").
    own: whether a token may attend to itself. If not, it sees those before it alone, and the first
        token itself, for it has no other.
    scored: "all" targets, or only those after "marks", so that what a letter reads does no harm.
    """

    length: int = 32
    symbols: int = 16
    every: int = 8
    start: Literal["first", "random", "none"] = "first"
    own: bool = True
    scored: Literal["all", "marks"] = "all"
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "ditto"

    def __post_init__(self) -> None:
        self._check_sizes(length=4, symbols=3, every=2)
        check_choice("start", self.start, _STARTS)
        check_choice("scored", self.scored, _SCORED)
        check_flag("own", self.own)
        options = f"length={self.length} and symbols={self.symbols}"
        enough_contents([self.symbols] * (self.length - 1), options)

    @property
    def vocab(self) -> int:
        return self.symbols + 2

    @property
    def mark(self) -> int:
        """The token after which the letter before it is repeated."""
        return self.symbols

    @property
    def begin(self) -> int:
        """The start token."""
        return self.symbols + 1

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: letters, ″ and <s>."""
        return display_names(ids, [*letters(self.symbols), MARK, START])

    def probabilities(self) -> np.ndarray:
        """(symbols, symbols + 1): how probable each letter, and the mark, is after each letter."""
        return _chain(self.symbols, self.every)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        text = draw_contents(split, size, generator, self._sample)
        inputs, targets = text[:, :-1], text[:, 1:]
        if self.scored == "marks":
            targets = np.where(inputs == self.mark, targets, UNSCORED)
        if self.start != "none":
            last = self.length if self.start == "random" else 1
            at = generator.integers(last, size=(size, 1))
            at = at + (np.take_along_axis(text, at, axis=1) == self.mark)  # not before a mark
            at = np.minimum(at, self.length - 1)
            inputs, targets = _with(inputs, self.begin, at), _with(targets, UNSCORED, at)
        seen = None if self.own else Visibility(_others(self.length).expand(size, -1, -1))
        return Batch(from_numpy(inputs.copy()), from_numpy(targets.copy()), structure=seen)

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        width = self.length + (self.start == "none")
        bounds = self.probabilities().cumsum(axis=1)[:, :-1]
        text = np.empty((rows, width), dtype=np.int64)
        text[:, 0] = generator.integers(self.symbols, size=rows)
        for place in range(1, width):
            last, before = text[:, place - 1], text[:, max(place - 2, 0)]
            repeats = last == self.mark
            drawn = generator.random((rows, 1)) > bounds[np.where(repeats, 0, last)]
            text[:, place] = np.where(repeats, before, drawn.sum(axis=1))
        return text

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        return Example(
            title=f"{tokens.count(MARK)} of {self.length} tokens ask for the one before them",
            description=(
                f"{self.length} tokens of a Markov chain of {self.symbols} letters. After the mark "
                f"{MARK}, which stands there {tokens.count(MARK)} times, the letter before it is "
                "repeated."
            ),
            tokens=tokens,
            labels=labels,
        )


@lru_cache(maxsize=8)
def _chain(symbols: int, every: int) -> np.ndarray:
    """The same chain each time: of every letter some others follow often and some never do."""
    drawn = np.random.default_rng(19).dirichlet([0.5] * symbols, size=symbols)
    return np.concatenate([drawn * (1 - 1 / every), np.full((symbols, 1), 1 / every)], axis=1)


def _others(length: int) -> Tensor:
    """Which tokens each one sees: those before it; the first one itself, for it has no other."""
    allowed = torch.ones(length, length, dtype=torch.bool).tril(-1)
    allowed[0, 0] = True
    return allowed


def _with(rows: np.ndarray, token: int, at: np.ndarray) -> np.ndarray:
    """Each row with one token more, at its place ``at``."""
    place = np.arange(rows.shape[1] + 1)[None]
    taken = np.clip(place - (place > at), 0, rows.shape[1] - 1)
    return np.where(place == at, token, np.take_along_axis(rows, taken, axis=1))
