"""Placed digits: a handwritten digit somewhere on a larger blank image; which one is it?

An image of 16 × 16 pixels holds one digit of scikit-learn (`attnlab.tasks.digits`, 8 × 8 pixels)
at a random place. The images as they come always show the digit in the middle, where a pixel says
much of its class; here a model has to tell the same digit wherever it stands.

With ``step=4`` the digit stands only where both of its edges are multiples of 4, so that patches of
4 × 4 pixels always cut it in the same way. A model that was trained on such places can then be
asked about those in between.

No image of a digit occurs in both splits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import from_numpy

from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.digits import SIDE, from_patches, images_of_split, into_patches
from attnlab.tasks.scenes import check_patch

CANVAS = 2 * SIDE


@dataclass(frozen=True)
class PlacedDigits(Task):
    """Images `(b, n, patch²)` as patches of brightness from 0 to 1 in reading order, and the digit.

    patch: side of a patch: 1, 2, 4 (the default: 16 patches) or 8.
    step: the digit's upper and left edge are multiples of it: 1 (any of 81 places), 2, 4 (9
        places) or 8.
    """

    patch: int = 4
    step: int = 1
    name: ClassVar[str] = "placed_digits"
    kind: ClassVar[str] = "classifier"
    classes: ClassVar[int] = 10

    def __post_init__(self) -> None:
        self._check_sizes(patch=1, step=1)
        check_patch(self.patch)
        check_patch(self.step, "step")

    @property
    def features(self) -> int:
        return self.patch**2

    @property
    def length(self) -> int:
        return (CANVAS // self.patch) ** 2

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        images, labels = images_of_split(split)
        chosen = generator.integers(len(images), size=size)
        corners = self.step * generator.integers(SIDE // self.step + 1, size=(size, 2))
        placed = placed_at(images[chosen], corners)
        return Batch(from_numpy(into_patches(placed, self.patch)), from_numpy(labels[chosen]))

    def _describe(self, batch: Batch) -> Example:
        label = str(batch.targets.item())
        return Example(
            title=f"A {label} somewhere",
            description=f"{self.length} patches in reading order; the answer is {label}.",
            labels=[label],
            image=from_patches(batch.inputs.numpy(), self.patch, CANVAS, CANVAS)[0].astype(
                np.int64
            ),
        )


def placed_at(images: np.ndarray, corners: np.ndarray | Sequence[Sequence[int]]) -> np.ndarray:
    """Levels `(b, 16, 16)`: each of the images `(b, 8, 8)` with its upper left pixel at its
    (row, column) of ``corners`` `(b, 2)`, from 0 to 8; blank elsewhere."""
    inside = np.arange(SIDE)
    rows, columns = (np.asarray(corners)[:, axis, None] + inside for axis in (0, 1))
    placed = np.zeros((len(images), CANVAS, CANVAS), images.dtype)
    placed[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None]] = images
    return placed
