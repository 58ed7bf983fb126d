"""Scenes: two handwritten digits side by side; which two are they?

An image of 8 × 16 pixels holds two digits of scikit-learn (`attnlab.tasks.digits`), drawn
independently. It is read as patches, and the answer is one of 100 pairs: 10 · left + right. Half of
what a model has to know is what stands there, the other half is where it stands: a 3 beside a 7 is
another scene than a 7 beside a 3. `attnlab.tasks.captions` describes the same scenes in words.

No image of a digit occurs in both splits; all 100 pairs occur in each.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import from_numpy

from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.digits import SIDE, from_patches, images_of, into_patches

WIDTH = 2 * SIDE


@dataclass(frozen=True)
class Scenes(Task):
    """Scenes `(b, n, patch²)` as patches of brightness from 0 to 1 in reading order, and their
    pairs of digits.

    patch: side of a patch: 1, 2 (the default: 32 patches), 4 or 8.
    """

    patch: int = 2
    name: ClassVar[str] = "scenes"
    kind: ClassVar[str] = "classifier"
    classes: ClassVar[int] = 100

    def __post_init__(self) -> None:
        self._check_sizes(patch=1)
        check_patch(self.patch)

    @property
    def features(self) -> int:
        return self.patch**2

    @property
    def length(self) -> int:
        return SIDE * WIDTH // self.patch**2

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        scenes, digits = draw_scenes(split, size, generator)
        pairs = 10 * digits[:, 0] + digits[:, 1]
        return Batch(from_numpy(into_patches(scenes, self.patch)), from_numpy(pairs))

    def _describe(self, batch: Batch) -> Example:
        left, right = divmod(int(batch.targets), 10)
        return Example(
            title=f"A {left} left of a {right}",
            description=f"{self.length} patches in reading order; the answer is the pair "
            f"{left}{right}.",
            labels=[f"{left}{right}"],
            image=scene_of(batch.inputs[0].numpy(), self.patch),
        )


def check_patch(patch: int, name: str = "patch") -> None:
    """A ValueError unless a patch of this side divides an image of a digit."""
    if patch not in (1, 2, 4, SIDE):
        raise ValueError(f"{name} should divide {SIDE}: 1, 2, 4 or 8, got {patch}")


def draw_scenes(
    split: str, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Levels of brightness `(b, 8, 16)`, 0 to 16, and the two digits `(b, 2)`, left first."""
    digits = generator.integers(10, size=(size, 2))
    images = images_of(digits, split, generator)
    return np.concatenate([images[:, 0], images[:, 1]], axis=2), digits


def scene_of(patches: np.ndarray, patch: int) -> np.ndarray:
    """The levels of brightness `(8, 16)` of one scene from its patches `(n, patch²)`."""
    return from_patches(patches[None], patch, WIDTH)[0].astype(np.int64)
