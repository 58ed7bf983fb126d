"""Denoising: remember the marked numbers of a long random sequence, in their order.

Two channels: the numbers, drawn from a standard normal distribution, and beside them marks that say
which are to be remembered. The marked ones are asked for at the end, in the order of time; what
comes between and after them is noise. Vecoven, Ernst, Drion, "A bio-inspired bistable recurrent
cell allows for long-lasting memory", PLoS ONE 2021, arXiv:2006.05252: T = 400 steps, 5 marks, none
in the last N = 0 or 200 steps, and the squared error of the five numbers.

The authors have released two codings. Which of them a table of the paper used is not known, so the
coding is an option:

    2020    the mark is 0 at a marked number and -1 elsewhere. One more step after the T, with the
            number 0 and the mark 1, asks for all answers at once.
    2021    the mark is 1 at a marked number and 0 elsewhere. The last of the T steps has the number
            0 and the mark -1: there the first answer is asked for, and each of the steps after it,
            of zeros alone, asks for one more.

``values`` gives the numbers to be remembered. As a classifier the answer is all their signs, as a
binary number whose first digit is the first of them.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task

CODINGS = ("2020", "2021")
MOST_MARKED = 16


@dataclass(frozen=True)
class Denoising(Task):
    """`steps` numbers (T), `marked` of them marked, none among the last `closing` (N) numbers.

    Inputs are (b, length, 2), numbers and marks; `length` is T + 1 in the coding "2020", and
    T + `marked` - 1 in that of 2021, where no mark stands at the last of the T steps.
    """

    steps: int = 400
    marked: int = 5
    closing: int = 200
    coding: str = "2020"
    name: ClassVar[str] = "denoising"
    kind: ClassVar[str] = "classifier"
    features: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._check_sizes(steps=1, marked=1, closing=0)
        check_choice("coding", self.coding, CODINGS)
        if self.marked > MOST_MARKED:
            raise ValueError(
                f"marked should be at most {MOST_MARKED}, for each number doubles the classes, "
                f"got {self.marked}"
            )
        if self._places < self.marked:
            raise ValueError(
                f"steps={self.steps} with closing={self.closing} leaves {max(self._places, 0)} "
                f"places for marked={self.marked} numbers: give more steps"
            )

    @property
    def _places(self) -> int:
        """How many steps may be marked: all but the closing ones, and that which asks in 2021."""
        return self.steps - max(self.closing, self.coding == "2021")

    @property
    def length(self) -> int:
        return self.steps + (1 if self.coding == "2020" else self.marked - 1)

    @property
    def classes(self) -> int:
        return int(2**self.marked)

    def values(self, split: str, size: int, seed: int) -> tuple[Tensor, Tensor]:
        """The rows of `batch`, and their marked numbers (b, marked) in the order of time.

        In the coding "2020" all are asked for at the last position, in that of 2021 one at each of
        the last `marked` positions. 1 is the squared error of always 0.
        """
        inputs = self.batch(split, size, seed).inputs
        return inputs, self._asked(inputs)

    def _asked(self, inputs: Tensor) -> Tensor:
        mark = 0.0 if self.coding == "2020" else 1.0
        number, marks = inputs[:, : self.steps].unbind(-1)
        return number[marks == mark].view(len(inputs), self.marked)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        rows = np.zeros((size, self.length, 2), dtype=np.float32)
        rows[:, : self.steps, 0] = generator.standard_normal((size, self.steps), dtype=np.float32)
        keys = generator.random((size, self._places))
        times = np.argpartition(keys, self.marked - 1, axis=1)[:, : self.marked]
        if self.coding == "2020":
            rows[:, : self.steps, 1] = -1
            np.put_along_axis(rows[..., 1], times, 0, axis=1)
            rows[:, -1, 1] = 1
        else:
            np.put_along_axis(rows[..., 1], times, 1, axis=1)
            rows[:, self.steps - 1] = 0, -1
        inputs = from_numpy(rows)
        digits = 2 ** torch.arange(self.marked - 1, -1, -1)
        return Batch(inputs, ((self._asked(inputs) > 0) * digits).sum(dim=1))

    def _describe(self, batch: Batch) -> Example:
        asked = ", ".join(f"{number:.2f}" for number in self._asked(batch.inputs)[0].tolist())
        return Example(
            title=f"{self.marked} marked numbers among {self.steps}",
            description=f"The marked numbers are {asked}.",
            labels=[f"{int(batch.targets[0]):0{self.marked}b}"],
        )
