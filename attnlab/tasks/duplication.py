"""Duplication: read a word of symbols between zeros, and write it again: 0 w 0 w.

    0 a c b 0 a c b

The task of Kitaev, Kaiser, Levskaya (Reformer, ICLR 2020, arXiv:2001.04451, section 4): only the
second word is scored, and to write a symbol a query has to find one certain position before it.
There 0 w 0 w has 1,024 tokens and w is of 127 symbols; here sizes are for a laptop.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab.tasks import Batch
from attnlab.tasks.copying import Copying
from attnlab.tasks.sequences import draw_contents, shifted


@dataclass(frozen=True)
class Duplication(Copying):
    """A word of `items` random symbols out of `symbols`, twice; the zero is one token more."""

    items: int = 31
    symbols: int = 15
    name: ClassVar[str] = "duplication"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "language_model":
            raise ValueError(
                f"duplication is for kind='language_model', one sequence 0 w 0 w, got {self.kind!r}"
            )

    @property
    def length(self) -> int:
        return 2 * self.items + 1

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        word = draw_contents(split, size, generator, self._sample)
        half = np.concatenate([np.full((size, 1), self.symbols), word], axis=1)
        is_answer = np.arange(2 * self.items + 2) > self.items + 1
        return Batch(*shifted(np.concatenate([half, half], axis=1), is_answer))
