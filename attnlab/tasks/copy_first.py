"""Copying the first input: what was the first number of a long random sequence?

All numbers are drawn alike, so nothing but its place marks the first, and nothing after it helps.
The answer is asked for at the end: a recurrent network has to hold it in its state for `length`
steps. Vecoven, Ernst, Drion, "A bio-inspired bistable recurrent cell allows for long-lasting
memory", PLoS ONE 2021, arXiv:2006.05252, ask for the number itself, by the squared error, at
lengths up to 600; ``values`` gives their data. As a classifier the answer is the range in which the
number lies, with two ranges its sign: one bit to be latched.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, from_numpy

from attnlab.tasks import Batch, Example, Task


@dataclass(frozen=True)
class CopyFirst(Task):
    """`length` numbers from a standard normal distribution, (b, length, 1).

    The class of a row is the range of the first number, of `levels` ranges that are equally likely,
    the lowest first.
    """

    length: int = 300
    levels: int = 2
    name: ClassVar[str] = "copy_first"
    kind: ClassVar[str] = "classifier"
    features: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._check_sizes(length=1, levels=2)

    @property
    def classes(self) -> int:
        return self.levels

    def values(self, split: str, size: int, seed: int) -> tuple[Tensor, Tensor]:
        """The rows of `batch`, and the first number of each (b,): 1 is the error of always 0."""
        inputs = self.batch(split, size, seed).inputs
        return inputs, inputs[:, 0, 0].clone()

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        drawn = generator.standard_normal((size, self.length, 1), dtype=np.float32)
        inputs = from_numpy(drawn)
        return Batch(inputs, level_of(inputs[:, 0, 0], self.levels))

    def _describe(self, batch: Batch) -> Example:
        first, label = batch.inputs[0, 0, 0].item(), int(batch.targets[0])
        return Example(
            title=f"The first of {self.length} numbers",
            description=f"The first of {self.length} random numbers is {first:.2f}: range {label} "
            f"of 0 to {self.levels - 1}.",
            labels=[str(label)],
        )


def level_of(numbers: Tensor, levels: int) -> Tensor:
    """In which of `levels` equally likely ranges numbers of a standard normal distribution lie."""
    bounds = torch.special.ndtri(torch.arange(1, levels, dtype=torch.float64) / levels)
    return torch.bucketize(numbers.double(), bounds)
