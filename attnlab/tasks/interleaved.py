"""Interleaved: sentences about numbers, in which images may stand in the place of words.

    four four this is a four .            [image of 4] this is a four .
    four four after this comes five .     [image of 4] after this comes five .
    two two nine nine the larger is nine .

A number of a sentence is written, by its word said twice, or shown: then two markers stand there,
for the two vectors that a model makes of an image. So a model that has read such sentences in words
can be asked about images in the same form. Which sentences are written and which are shown are two
options: a language model is trained on written ones, vectors for it on shown ones of one kind, and
then others are asked.

A shown digit is a handwritten one of scikit-learn; no image occurs in both splits. Written
sentences are few, and all of them occur in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.options import check_value
from attnlab.core.suggest import check_choice
from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.captions import NUMBERS
from attnlab.tasks.digits import SIDE, from_patches, images_of, into_patches
from attnlab.tasks.scenes import check_patch
from attnlab.tasks.sequences import display_names

SENTENCES = {
    "is": ("this", "is", "a"),
    "after": ("after", "this", "comes"),
    "before": ("before", "this", "comes"),
    "parity": ("this", "is"),
    "larger": ("the", "larger", "is"),
}
"""What stands between the numbers of a sentence and its answer, by the kind of sentence."""
_WORDS = ("this", "is", "a", "after", "before", "comes", "the", "larger", "even", "odd")
NAMES = (*NUMBERS, *_WORDS, ".", "start", "image")
START, MARKER = len(NAMES) - 2, len(NAMES) - 1
VECTORS = 2  # markers for an image, as many as a written number has words
_IDS = {name: place for place, name in enumerate(NAMES)}
_Names = tuple[str, ...]


@dataclass(frozen=True)
class Interleaved(Task):
    """Sentences `(b, n)` about one number or two; with shown ones also images `(b, i · m, patch²)`
    in ``source``, the patches of one image after those of the other.

    Every kind of sentence is equally likely. What follows the numbers is to be answered; the
    answer itself is the last but one token.

    written, shown: the kinds of sentences whose numbers are words, and images: "is", "after",
        "before", "parity", "larger". Without shown ones there is no source, and the task is one of
        a language model.
    patch: side of the patches of an image: 1, 2 (the default), 4 or 8.
    """

    written: _Names = ()
    shown: _Names = ("is",)
    patch: int = 2
    name: ClassVar[str] = "interleaved"
    vocab: ClassVar[int] = len(NAMES)

    def __post_init__(self) -> None:
        self._check_sizes(patch=1)
        check_patch(self.patch)
        for name in ("written", "shown"):
            kinds = check_value(name, getattr(self, name), _Names)
            object.__setattr__(self, name, kinds)
            for kind in kinds:
                check_choice("sentence", kind, SENTENCES)
            if len(set(kinds)) < len(kinds):
                raise ValueError(f"{name} should name each kind of sentence once, got {kinds!r}")
        if not self.written and not self.shown:
            raise ValueError("name at least one kind of sentence, as written=… or shown=…")

    @property
    def kind(self) -> str:
        return "encoder_decoder" if self.shown else "language_model"

    @property
    def images(self) -> int:
        """The most images that a sentence shows."""
        return max((_numbers(kind) for kind in self.shown), default=0)

    @property
    def patches(self) -> int:
        """How many patches an image has."""
        return (SIDE // self.patch) ** 2

    @property
    def length(self) -> int:
        kinds = {*self.written, *self.shown}
        return max(2 + VECTORS * _numbers(kind) + len(SENTENCES[kind]) for kind in kinds)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, NAMES)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        kinds = [*((kind, False) for kind in self.written), *((kind, True) for kind in self.shown)]
        chosen = [kinds[i] for i in generator.integers(len(kinds), size=size)]
        digits = np.zeros((size, 2), dtype=np.int64)
        rows = np.full((size, self.length + 1), _IDS["."])
        targets = np.full((size, self.length), UNSCORED)
        ends = np.zeros((size, 1), dtype=np.int64)
        for row, (kind, shown) in enumerate(chosen):
            digits[row], said, begin = _sentence(kind, shown, generator)
            rows[row, : len(said)], ends[row] = said, len(said) - 1
            targets[row, begin - 1 : len(said) - 1] = said[begin:]
        real = np.arange(self.length) < ends
        inputs = from_numpy(np.where(real, rows[:, :-1], 0))
        if not self.shown:
            return Batch(inputs, from_numpy(targets), from_numpy(real))
        seen = np.array([[shown and i < _numbers(kind) for i in range(self.images)]
                         for kind, shown in chosen])  # fmt: skip
        pictures = images_of(digits[:, : self.images], split, generator)
        patches = into_patches(pictures.reshape(-1, SIDE, SIDE), self.patch)
        patches = patches.reshape(size, self.images, self.patches, -1)
        patches = np.where(seen[:, :, None, None], patches, 0).astype(np.float32)
        return Batch(
            inputs,
            from_numpy(targets),
            padding=from_numpy(real),
            source=from_numpy(patches.reshape(size, self.images * self.patches, -1)),
            source_padding=from_numpy(np.repeat(seen, self.patches, axis=1)),
        )

    def _describe(self, batch: Batch) -> Example:
        assert batch.padding is not None
        said = " ".join(self.tokens(batch.inputs[0][batch.padding[0]])[1:])
        labels = self.tokens(batch.targets[0])
        answer = [label for label in labels if label][-2]
        return Example(
            title=f"A sentence that ends with {answer}",
            description=f"The sentence is “{said}”; the answer is {answer}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=labels,
            image=None if batch.source is None else self._pictures(batch.source[0].numpy()),
        )

    def _pictures(self, patches: np.ndarray) -> np.ndarray:
        """The images of a sentence side by side, `(8, 8 · images)`; those that are missing dark."""
        each = from_patches(patches.reshape(self.images, self.patches, -1), self.patch)
        return np.concatenate([*each], axis=1).astype(np.int64)


def _numbers(kind: str) -> int:
    """How many numbers a sentence is about."""
    return 2 if kind == "larger" else 1


def _sentence(
    kind: str, shown: bool, generator: np.random.Generator
) -> tuple[np.ndarray, list[int], int]:
    """Two digits, of which the second may not be asked about; the sentence; where its numbers end.

    Every answer that the kind allows is possible.
    """
    low, high = {"after": (0, 9), "before": (1, 10)}.get(kind, (0, 10))
    first = int(generator.integers(low, high))
    second = int((first + generator.integers(1, 10)) % 10)
    numbers = [first, second][: _numbers(kind)]
    said = [number for each in numbers for number in (MARKER if shown else each,) * VECTORS]
    middle = [_IDS[word] for word in SENTENCES[kind]]
    sentence = [START, *said, *middle, _answer(kind, numbers), _IDS["."]]
    return np.array([first, second]), sentence, 1 + len(said)


def _answer(kind: str, numbers: Sequence[int]) -> int:
    """The token that ends a sentence."""
    if kind == "parity":
        return _IDS["odd" if numbers[0] % 2 else "even"]
    return {
        "is": numbers[0],
        "after": numbers[0] + 1,
        "before": numbers[0] - 1,
        "larger": max(numbers),
    }[kind]
