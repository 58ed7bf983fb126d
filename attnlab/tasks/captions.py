"""Captions: describe a scene of two handwritten digits in words.

    [an image of 3 7]  →  a three left of a seven

The scenes are those of `attnlab.tasks.scenes`: 8 × 16 pixels, two digits of scikit-learn. A model
reads the patches and writes the words. Two captions may describe one scene, "a three left of a
seven" and "a seven right of a three", so that the first digit of a caption is not always the left
one. Pictures that come with a sentence are what models of images and language are trained on.

No image of a digit occurs in both splits; all captions occur in each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, from_numpy

from attnlab.core.integers import check_integer
from attnlab.core.options import check_value
from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.digits import SIDE, into_patches
from attnlab.tasks.scenes import WIDTH, check_patch, draw_scenes, scene_of
from attnlab.tasks.sequences import display_names, shifted

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIDES = ("left", "right")
START, END = 14, 15
_NAMES = (*NUMBERS, "a", "of", *SIDES, "start", "end")
_A, _OF, _SIDE = 10, 11, 12
_WORDS = 6  # of every caption
_Names = tuple[str, ...]


@dataclass(frozen=True)
class Captions(Task):
    """Scenes as patches `(b, m, patch²)` in ``source``, and their captions.

    Tokens are the ten numbers (the token of a number is the number itself), "a", "of", "left",
    "right", "start" and "end". A row is "start" and six words, and after these "end" is to be
    answered.

    patch: side of a patch: 1, 2 (the default: 32 patches), 4 or 8.
    sides: the words by which a caption tells where its first digit stands: ("left",), ("right",)
        or both, drawn for each row.
    """

    patch: int = 2
    sides: _Names = ("left",)
    name: ClassVar[str] = "captions"
    kind: ClassVar[str] = "encoder_decoder"
    vocab: ClassVar[int] = len(_NAMES)
    length: ClassVar[int] = 1 + _WORDS

    def __post_init__(self) -> None:
        self._check_sizes(patch=1)
        check_patch(self.patch)
        object.__setattr__(self, "sides", check_value("sides", self.sides, _Names))
        for side in self.sides:
            check_choice("side", side, SIDES)
        if not self.sides or len(set(self.sides)) < len(self.sides):
            raise ValueError(
                f"sides should name 'left', 'right' or both, each once, got {self.sides!r}"
            )

    @property
    def patches(self) -> int:
        """How many patches a scene has."""
        return SIDE * WIDTH // self.patch**2

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, _NAMES)

    def caption(self, left: int, right: int, side: str = "left") -> Tensor:
        """The tokens (7,) from "start" on that describe a scene with these two digits."""
        digits = [check_integer("a digit", each, at_least=0) for each in (left, right)]
        if max(digits) > 9:
            raise ValueError(f"digits are from 0 to 9, got {left} and {right}")
        check_choice("side", side, SIDES)
        row = _written(np.array([digits]), np.array([SIDES.index(side)]))[0, :-1]
        return from_numpy(np.ascontiguousarray(row))

    def pair(self, ids: Tensor | Sequence[int]) -> tuple[int, int] | None:
        """The digits, left first, of the scene that the tokens describe; None if they are no
        caption. "start" may be missing, and what follows "end" is not read."""
        said = [name for name in self.tokens(ids) if name]
        said = said[said[:1] == ["start"] :]
        said = said[: said.index("end")] if "end" in said else said
        if len(said) != _WORDS or said[0] != "a" or said[3:5] != ["of", "a"]:
            return None
        if said[1] not in NUMBERS or said[5] not in NUMBERS or said[2] not in SIDES:
            return None
        first, second = NUMBERS.index(said[1]), NUMBERS.index(said[5])
        return (first, second) if said[2] == "left" else (second, first)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        scenes, digits = draw_scenes(split, size, generator)
        known = np.array([SIDES.index(side) for side in self.sides])
        written = _written(digits, known[generator.integers(len(known), size=size)])
        source = from_numpy(into_patches(scenes, self.patch))
        inputs, targets = shifted(written, np.array(True))
        return Batch(
            inputs,
            targets,
            source=source,
            source_padding=torch.ones(source.shape[:2], dtype=torch.bool),
        )

    def _describe(self, batch: Batch) -> Example:
        assert batch.source is not None
        words = " ".join(self.tokens(batch.inputs[0])[1:])
        return Example(
            title=words.capitalize(),
            description=f"From {self.patches} patches the model is to write: {words}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=self.tokens(batch.targets[0]),
            image=scene_of(batch.source[0].numpy(), self.patch),
        )


def _written(digits: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Captions `(b, 8)` from "start" to "end" of scenes with these digits `(b, 2)`, left first,
    whose first digit stands on that side `(b,)`."""
    ordered = np.where(sides[:, None] == 0, digits, digits[:, ::-1])
    rows = np.empty((len(digits), 2 + _WORDS), dtype=np.int64)
    rows[:, [0, 1, 4, 5, 7]] = START, _A, _OF, _A, END
    rows[:, [2, 6]], rows[:, 3] = ordered, _SIDE + sides
    return rows
