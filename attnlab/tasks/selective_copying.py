"""Selective copying: write again the symbols that stand among blanks, in their order.

    . c . . a . b . | c a b

Spread at random, the symbols stand at another distance from their copies in every sequence. A layer
whose map depends on distances alone reads the same distances in each of them; one whose map depends
on the tokens can skip the blanks. With ``spacing="together"`` the symbols are the first tokens, and
each stands at the same distance from its copy: the same task without the need to choose.

The task is from A. Gu and T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State
Spaces", COLM 2024, arXiv:2312.00752, section 3.1, after L. Jing and others, "Gated Orthogonal
Recurrent Units", arXiv:1706.02761. There, markers in place of the copies ask for each symbol; here
the model reads its answers, as a language model does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.core.suggest import check_choice
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

BLANK = "."
SPACINGS = ("random", "together")


@dataclass(frozen=True)
class SelectiveCopying(Task):
    """`items` symbols out of `symbols` at random among `places`, the others blank; then the copy.

    Tokens are the symbols, then the blank and the separator. The list of items decides the split:
    no list occurs in both splits, wherever its items stand.
    """

    items: int = 4
    symbols: int = 8
    places: int = 16
    spacing: str = "random"
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "selective_copying"

    def __post_init__(self) -> None:
        self._check_sizes(items=2, symbols=2, places=2)
        check_choice("spacing", self.spacing, SPACINGS)
        if self.items > self.places:
            raise ValueError(
                f"The items need a place each, so items={self.items} needs places of at least "
                f"{self.items}, got places={self.places}"
            )
        options = f"items={self.items} and symbols={self.symbols}"
        enough_contents(repeat(self.symbols, self.items), options)

    @property
    def vocab(self) -> int:
        return self.symbols + 2

    @property
    def length(self) -> int:
        return self.places + self.items

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, [*letters(self.symbols), BLANK, SEPARATOR])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        contents = draw_contents(split, size, generator, self._sample)
        read = np.full((size, self.places), self.symbols)
        np.put_along_axis(read, self._chosen(generator, size), contents, axis=1)
        separator = np.full((size, 1), self.symbols + 1)
        is_answer = np.arange(self.length + 1) > self.places
        return Batch(*shifted(np.concatenate([read, separator, contents], axis=1), is_answer))

    def _chosen(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        """The places of the items, in order."""
        if self.spacing == "together":
            return np.tile(np.arange(self.items), (rows, 1))
        return np.sort(without_repeats(generator, rows, self.places, self.items), axis=1)

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        return generator.integers(self.symbols, size=(rows, self.items))

    def _describe(self, batch: Batch) -> Example:
        labels = self.tokens(batch.targets[0])
        answer = " ".join(label for label in labels if label)
        return Example(
            title=f"Copying {self.items} symbols among {self.places - self.items} blanks",
            description=f"After the separator the symbols are to be written in order: {answer}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=labels,
        )
