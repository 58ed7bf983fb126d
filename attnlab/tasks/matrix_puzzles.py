"""Matrix puzzles: eight panels of a square of nine show digits; which digit belongs in the ninth?

    1 2 3
    4 5 6
    7 8 ?      →  9

Every row goes on by the same step: here by 1. The panels are handwritten digits, a different image
each time, so a model has to read the eight digits before it can find the rule. The form is that of
Raven's progressive matrices, on which KOSMOS-1 was tried (S. Huang and others, "Language Is Not
All You Need", 2023, arXiv:2302.14045); the rule here is one of few, and numbers take the place of
shapes.

No image occurs in both splits. The same numbers may stand in both; there are few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import from_numpy

from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.digits import SIDE, from_patches, images_of, into_patches
from attnlab.tasks.scenes import check_patch

PANELS = 8


@dataclass(frozen=True)
class MatrixPuzzles(Task):
    """Eight panels in reading order, each `64 / patch²` vectors of brightness from 0 to 1, and
    the digit of the ninth.

    patch: side of a patch: 1, 2, 4 or 8 (the default: each panel is one vector).
    largest_step: rows go on by a step from -largest_step to largest_step, 0 included; at most 4.
    """

    patch: int = SIDE
    largest_step: int = 2
    name: ClassVar[str] = "matrix_puzzles"
    kind: ClassVar[str] = "classifier"
    classes: ClassVar[int] = 10

    def __post_init__(self) -> None:
        self._check_sizes(patch=1, largest_step=1)
        check_patch(self.patch)
        check_step(self.largest_step)

    @property
    def features(self) -> int:
        return self.patch**2

    @property
    def length(self) -> int:
        return PANELS * (SIDE // self.patch) ** 2

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        numbers = draw_matrices(size, self.largest_step, generator)
        panels = images_of(numbers[:, :PANELS], split, generator)
        patches = into_patches(panels.reshape(-1, SIDE, SIDE), self.patch)
        inputs = patches.reshape(size, self.length, self.features)
        return Batch(from_numpy(inputs), from_numpy(numbers[:, PANELS].copy()))

    def _describe(self, batch: Batch) -> Example:
        answer = int(batch.targets)
        panels = from_patches(batch.inputs[0].numpy(), self.patch).astype(np.int64)
        return Example(
            title=f"A matrix whose last panel is a {answer}",
            description=f"Every row goes on by the same step; the ninth panel is a {answer}.",
            labels=[str(answer)],
            image=square_of(panels),
        )


def check_step(largest: int) -> None:
    """A ValueError for a step after which no row of three digits is left."""
    if largest > 4:
        raise ValueError(
            f"three digits from 0 to 9 can go on by a step of at most 4, got largest_step={largest}"
        )


def draw_matrices(size: int, largest_step: int, generator: np.random.Generator) -> np.ndarray:
    """The numbers `(b, 9)` of matrices in reading order, each from 0 to 9.

    One step for the three rows; every step is equally likely, and so is every first number of a
    row that leaves room for it.
    """
    step = generator.integers(-largest_step, largest_step + 1, size=(size, 1))
    room = 10 - 2 * np.abs(step)
    first = generator.integers(room, size=(size, 3)) + np.maximum(-2 * step, 0)
    matrix: np.ndarray = first[:, :, None] + step[:, :, None] * np.arange(3)
    return matrix.reshape(size, 9)


def answer_of(numbers: Sequence[int]) -> int:
    """The number that goes on the third row of the first eight (8,), if a matrix has those.

    A ValueError for other numbers.
    """
    given = np.asarray(numbers)
    if given.shape != (PANELS,):
        raise ValueError(f"a puzzle shows {PANELS} numbers, got shape {given.shape}")
    matrix = np.append(given, 2 * given[7] - given[6]).reshape(3, 3)
    steps = np.diff(matrix, axis=1)
    if (steps != steps[0, 0]).any() or not 0 <= matrix[2, 2] <= 9:
        raise ValueError(f"the rows of {given.tolist()} do not go on by one step from 0 to 9")
    return int(matrix[2, 2])


def square_of(panels: np.ndarray) -> np.ndarray:
    """One image `(26, 26)` of eight panels `(8, 8, 8)` with a line of darkness between them; the
    ninth place is dark."""
    image = np.zeros((3 * SIDE + 2, 3 * SIDE + 2), dtype=np.int64)
    for place, panel in enumerate(panels):
        row, column = (each * (SIDE + 1) for each in divmod(place, 3))
        image[row : row + SIDE, column : column + SIDE] = panel
    return image
