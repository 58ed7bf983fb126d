"""Documents in which one passage comes again and again: how far back can a model reach?

Each document repeats a passage of `period` symbols, drawn for this document alone, `times` times.
The first time no symbol can be foretold. From then on the next symbol is the one that stood
`period` places before it, and nothing that is nearer tells what it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS, Batch, Example, Task

DOCUMENTS = 4096  # of each split


@dataclass(frozen=True)
class Refrain(Task):
    """Rows of `period` · `times` - 1 symbols; each target is the next symbol.

    Args:
        period: symbols of a passage.
        symbols: how many different ones there are.
        times: how often a passage stands in its document.
    """

    period: int = 24
    symbols: int = 16
    times: int = 8
    name: ClassVar[str] = "refrain"
    kind: ClassVar[str] = "language_model"

    def __post_init__(self) -> None:
        self._check_sizes(period=2, symbols=2, times=2)

    @property
    def vocab(self) -> int:
        return self.symbols

    @property
    def length(self) -> int:
        return self.period * self.times - 1

    def documents(self, split: str) -> list[Tensor]:
        """4,096 documents (period · times,) of `split`, the same every time."""
        check_choice("split", split, SPLITS)
        return [*self._written(DOCUMENTS, np.random.default_rng([SPLITS.index(split), 0]))]

    def _written(self, size: int, generator: np.random.Generator) -> Tensor:
        passages = generator.integers(self.symbols, size=(size, self.period))
        return from_numpy(np.tile(passages, self.times))

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        rows = self._written(size, generator)
        return Batch(rows[:, :-1].clone(), rows[:, 1:].clone())

    def _describe(self, batch: Batch) -> Example:
        return Example(
            title=f"{self.period} symbols, {self.times} times",
            description=f"A passage of {self.period} symbols is repeated {self.times} times. The "
            "next symbol is asked for everywhere; it can be known from the second time on.",
            tokens=[str(token) for token in batch.inputs[0].tolist()],
            labels=[str(token) for token in batch.targets[0].tolist()],
        )
