"""Real images: the 1797 handwritten digits of scikit-learn, 8 × 8 pixels, values 0 to 16.

As pixels an image is a sequence of 64 tokens in reading order, to be generated one after the other
(a language model over 17 levels) or to be classified. As patches it is a short sequence
of vectors, as in a vision transformer (A. Dosovitskiy and others, "An Image is Worth 16x16 Words",
ICLR 2021, arXiv:2010.11929).

The split is by image and the same share of every digit: within each class the images are put in
the order of a hash of their pixels and the first fifth is validation. Unlike the order in the data
set, this order does not depend on who wrote a digit.

The images are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C.
Kaynak, 1998, UCI Machine Learning Repository).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import display_names, shifted

SIDE = 8
LEVELS = 17
_START = LEVELS  # what a language model reads before the first pixel
_VALIDATION_SHARE = 5  # one image in five


@dataclass(frozen=True)
class Digits(Task):
    """Handwritten digits, to be classified or to be generated.

    Args:
        unit: "pixels" (64 tokens) or "patches" (vectors of brightness from 0 to 1).
        kind: "classifier", or with pixels also "language_model", which reads a start token (17)
            and the first 63 pixels, and is asked for all 64.
        patch: side of a patch: 1, 2 (the default) or 4. Only with unit="patches".
    """

    unit: str = "pixels"
    kind: str = "classifier"
    patch: int | None = None
    name: ClassVar[str] = "digits"

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, ("pixels", "patches"))
        check_choice("kind", self.kind, ("classifier", "language_model"))
        if self.unit == "patches" and self.kind == "language_model":
            raise ValueError(
                "Patches are vectors, and a language model predicts tokens: use unit='pixels' with "
                "kind='language_model', or kind='classifier'"
            )
        if self.unit == "pixels" and self.patch is not None:
            raise ValueError(
                f"patch={self.patch!r} has no effect with unit='pixels': leave it out, or ask for "
                "unit='patches'"
            )
        if self.unit == "patches" and self.patch is None:
            object.__setattr__(self, "patch", 2)  # the default; the class is frozen
        if self.unit == "patches":
            self._check_sizes(patch=1)
            if self._patch not in (1, 2, 4):
                raise ValueError(f"patch should divide {SIDE}: 1, 2 or 4, got {self.patch}")

    @property
    def vocab(self) -> int | None:
        if self.unit == "patches":
            return None
        return LEVELS if self.kind == "classifier" else LEVELS + 1

    @property
    def features(self) -> int | None:
        return self._patch**2 if self.unit == "patches" else None

    @property
    def classes(self) -> int | None:
        return 10 if self.kind == "classifier" else None

    @property
    def length(self) -> int:
        return (SIDE // self._patch) ** 2

    @property
    def _patch(self) -> int:
        return self.patch or 1

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: its level, or "start"."""
        return display_names(ids, [*map(str, range(LEVELS)), "start"])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        images, labels = images_of_split(split)
        # Rounds of permutations: no image comes twice before every image has come once.
        rounds = -(-size // len(images))
        chosen = np.concatenate([generator.permutation(len(images)) for _ in range(rounds)])[:size]
        pixels, answers = images[chosen], from_numpy(labels[chosen])
        if self.unit == "patches":
            return Batch(from_numpy(into_patches(pixels, self._patch)), answers)
        row = pixels.reshape(size, -1)
        if self.kind == "classifier":
            return Batch(from_numpy(row), answers)
        start = np.full((size, 1), _START)
        return Batch(*shifted(np.concatenate([start, row], axis=1), np.array(True)))

    def _describe(self, batch: Batch) -> Example:
        if self.kind == "language_model":
            return Example(
                title="A digit, pixel by pixel",
                description="From the pixels so far, in reading order, the model predicts the "
                "level of the next, 0 (dark) to 16.",
                tokens=self.tokens(batch.inputs[0]),
                labels=self.tokens(batch.targets[0]),
                image=batch.targets[0].numpy().reshape(SIDE, SIDE),
            )
        label = str(batch.targets.item())
        return Example(
            title=f"The digit {label}",
            description=f"{self.length} {self.unit} in reading order; the answer is {label}.",
            tokens=self.tokens(batch.inputs[0]) if self.unit == "pixels" else [],
            labels=[label],
            image=self._image(batch.inputs[0].numpy()),
        )

    def _image(self, inputs: np.ndarray) -> np.ndarray:
        if self.unit == "pixels":
            return inputs.reshape(SIDE, SIDE)
        return (from_patches(inputs[None], self._patch)[0]).astype(np.int64)


def into_patches(images: np.ndarray, patch: int) -> np.ndarray:
    """`(b, height, width)` levels → `(b, n, patch²)` brightness from 0 to 1, in reading order."""
    rows, columns = (side // patch for side in images.shape[1:])
    cut = images.reshape(-1, rows, patch, columns, patch).swapaxes(2, 3)
    return np.ascontiguousarray(cut.reshape(-1, rows * columns, patch**2), np.float32) / (
        LEVELS - 1
    )


def from_patches(
    patches: np.ndarray, patch: int, width: int = SIDE, height: int = SIDE
) -> np.ndarray:
    """The inverse of `into_patches`: levels `(b, height, width)`."""
    cut = patches.reshape(-1, height // patch, width // patch, patch, patch).swapaxes(2, 3)
    return cut.reshape(-1, height, width) * (LEVELS - 1)


def images_of(digits: np.ndarray, split: str, generator: np.random.Generator) -> np.ndarray:
    """For each of the digits `(b, …)` an image of it `(b, …, 8, 8)`, drawn from those of a split.

    Every image of a digit is as likely as the others.
    """
    images, labels = images_of_split(split)
    order, counts = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=10)
    first = np.cumsum(counts) - counts
    drawn = (generator.random(digits.shape) * counts[digits]).astype(np.int64)
    chosen: np.ndarray = images[order[first[digits] + drawn]]
    return chosen


@lru_cache(maxsize=2)
def images_of_split(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images `(b, 8, 8)` and labels `(b,)` of a split, int64."""
    images, labels = _load()
    is_validation = np.zeros(len(images), dtype=bool)
    for digit in range(10):
        ours = sorted(np.flatnonzero(labels == digit), key=lambda place: _hash(images[place]))
        is_validation[ours[: len(ours) // _VALIDATION_SHARE]] = True
    chosen = is_validation if split == "validation" else ~is_validation
    return images[chosen], labels[chosen]


def _hash(image: np.ndarray) -> bytes:
    return sha256(image.astype(np.uint8).tobytes()).digest()


@lru_cache(maxsize=1)
def _load() -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "The digits come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from error
    digits = load_digits()
    return digits.images.astype(np.int64), digits.target.astype(np.int64)
