"""Interleaved: sentences about numbers, in which images may stand in the place of words.

    four four this is a four .            [image of 4] this is a four .
    four four after this comes five .     [image of 4] after this comes five .
    two two nine nine the larger is nine .
    two two dax nine nine wug two two dax .

The last kind gives two numbers new names, which change from sentence to sentence, and asks for one
of them. Another shows the first eight numbers of a matrix puzzle (`attnlab.tasks.matrix_puzzles`)
and asks what comes next.

A number of a sentence is written, by its word said twice, or shown: then two markers stand there,
for the two vectors that a model makes of an image. So a model that has read such sentences in words
can be asked about images in the same form. Which sentences are written and which are shown are two
options: a language model is trained on written ones, vectors for it on shown ones of one kind, and
then others are asked.

A shown digit is a handwritten one of scikit-learn; no image occurs in both splits. Written
sentences have no split: there are 9 or 10 of most kinds, 90 of "the larger is", 2,160 with new
names and 2,456 puzzles, and any may occur in both. What a model is asked in words it may remember.
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
from attnlab.tasks.matrix_puzzles import PANELS, draw_matrices
from attnlab.tasks.scenes import check_patch
from attnlab.tasks.sequences import display_names

NEW_NAMES = ("dax", "blick", "wug", "toma")
SENTENCES = {
    "is": "0 this is a",
    "after": "0 after this comes",
    "before": "0 before this comes",
    "parity": "0 this is",
    "larger": "0 1 the larger is",
    "named": "0 x 1 y 2",
    "next": "0 1 2 3 4 5 6 7 the next is",
}
"""The form of each kind of sentence up to its answer: digits stand for its numbers, x and y for
new names."""
_WORDS = ("this", "is", "a", "after", "before", "comes", "the", "larger", "even", "odd", "next")
NAMES = (*NUMBERS, *_WORDS, *NEW_NAMES, ".", "start", "image")
START, MARKER = len(NAMES) - 2, len(NAMES) - 1
LARGEST_STEP = 2  # of matrix puzzles
VECTORS = 2  # markers for an image, as many as a written number has words
_IDS = {name: place for place, name in enumerate(NAMES)}
_Names = tuple[str, ...]


@dataclass(frozen=True)
class Interleaved(Task):
    """Sentences `(b, n)` about one number or more; with shown ones also images `(b, i · m, patch²)`
    in ``source``, the patches of one image after those of the other.

    Every kind of sentence is equally likely; with ``share`` every written kind is as likely as the
    other written ones, and every shown kind as the other shown ones. What follows the last number
    is to be answered; the answer itself is the last but one token.

    written, shown: the kinds of sentences whose numbers are words, and images: "is", "after",
        "before", "parity", "larger", "named", "next". Without shown ones there is no source, and
        the task is one of a language model.
    share: how much of the sentences is shown, where both kinds occur.
    patch: side of the patches of an image: 1, 2 (the default), 4 or 8.
    """

    written: _Names = ()
    shown: _Names = ("is",)
    patch: int = 2
    share: float | None = None
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
        if self.share is not None and not (self.written and self.shown and 0 < self.share < 1):
            raise ValueError(
                "share should lie between 0 and 1, and needs written and shown sentences, got "
                f"share={self.share!r} with written={self.written!r} and shown={self.shown!r}"
            )

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
        return max(2 + len(_form(kind)) + (VECTORS - 1) * _numbers(kind) for kind in kinds)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, NAMES)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        kinds = [*((kind, False) for kind in self.written), *((kind, True) for kind in self.shown)]
        chosen = [kinds[i] for i in self._kinds(size, generator)]
        digits = np.zeros((size, PANELS), dtype=np.int64)
        rows = np.full((size, self.length + 1), _IDS["."])
        targets = np.full((size, self.length), UNSCORED)
        ends = np.zeros((size, 1), dtype=np.int64)
        for row, (kind, shown) in enumerate(chosen):
            numbers, said, begin = _sentence(kind, shown, generator)
            digits[row, : len(numbers)] = numbers
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

    def _kinds(self, size: int, generator: np.random.Generator) -> np.ndarray:
        """Which kind each sentence is of: the written ones are counted first."""
        written, shown = len(self.written), len(self.shown)
        if self.share is None:
            return generator.integers(written + shown, size=size)
        shows = generator.random(size) < self.share
        kinds: np.ndarray = np.where(
            shows,
            written + generator.integers(shown, size=size),
            generator.integers(written, size=size),
        )
        return kinds

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


def _form(kind: str) -> list[str]:
    """The parts of a sentence up to its answer."""
    return SENTENCES[kind].split()


def _numbers(kind: str) -> int:
    """How many numbers a sentence is about."""
    return sum(part.isdigit() for part in _form(kind))


def _sentence(
    kind: str, shown: bool, generator: np.random.Generator
) -> tuple[list[int], list[int], int]:
    """Its numbers, the tokens, and where the last of its numbers ends."""
    numbers, answer = _about(kind, generator)
    new = generator.permutation(NEW_NAMES)[:2] if kind == "named" else NEW_NAMES[:2]
    names = dict(zip("xy", new, strict=True))
    said = [START]
    begin = 0
    for part in _form(kind):
        if part.isdigit():
            said += [MARKER if shown else numbers[int(part)]] * VECTORS
            begin = len(said)
        else:
            said.append(_IDS[names.get(part, part)])
    return numbers, [*said, _IDS[names.get(answer, answer)], _IDS["."]], begin


def _about(kind: str, generator: np.random.Generator) -> tuple[list[int], str]:
    """The numbers of a sentence, and the word that ends it, or x or y for a new name.

    Every answer that the kind allows is possible.
    """
    if kind == "next":
        *shown, last = (int(each) for each in draw_matrices(1, LARGEST_STEP, generator)[0])
        return shown, NUMBERS[last]
    low, high = {"after": (0, 9), "before": (1, 10)}.get(kind, (0, 10))
    first = int(generator.integers(low, high))
    second = int((first + generator.integers(1, 10)) % 10)
    if kind == "named":
        which = int(generator.integers(2))
        return [first, second, (first, second)[which]], "xy"[which]
    if kind == "parity":
        return [first], "odd" if first % 2 else "even"
    if kind == "larger":
        return [first, second], NUMBERS[max(first, second)]
    return [first], NUMBERS[first + {"is": 0, "after": 1, "before": -1}[kind]]
