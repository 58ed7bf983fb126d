"""Receipts: read what is printed, or say in JSON what was bought and what it costs.

    "tea" above "3.50"  →  reading:  t e a ⏎ 3 . 5 0
                        →  parsing:  <s_price> 3 . 5 0 </s_price> <s_item> t e a </s_item>

An image of 24 × 48 pixels, white paper and ink of some grey, shows two lines: a word and a price,
one above the other in either order, each moved to the right by a few characters. Reading writes all
characters from the first line to the last. Parsing writes the document {"item": …, "price": …} as
tokens (``attnlab.structures.json_tokens``), the price first wherever it stands: which line it is
has to be seen. This is a document reader's work in small (``attnlab.systems.donut``), which is
first trained to read, then to parse.

The letters are those of the bitmap font that comes with Pillow, 6 × 11 pixels each; Pillow is
needed to draw them. No pair of a word and a price occurs in both splits; of groceries, every word
and every price occurs in each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.structures.json_tokens import closing, opening, read, written
from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents

HEIGHT, WIDTH = 24, 48
ITEMS = (
    "apple", "bread", "butter", "cheese", "cocoa", "coffee", "cream", "eggs", "fish", "flour",
    "garlic", "ginger", "grapes", "honey", "jam", "juice", "kiwi", "leek", "lemon", "lime",
    "mango", "milk", "nuts", "oats", "oil", "olives", "onion", "peach", "pear", "pepper",
    "plum", "potato", "quince", "rice", "salt", "soup", "sugar", "tea", "tomato", "yeast",
)  # fmt: skip
FORMS = ("reading", "parsing")
WORDS = ("groceries", "letters")
KEYS = ("item", "price")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CHARACTERS = (*_LETTERS, *"0123456789", ".")
NEWLINE = "⏎"
NAMES = (
    *_CHARACTERS, NEWLINE, *(tag for key in KEYS for tag in (opening(key), closing(key))),
    *(opening(form) for form in FORMS), "</s>",
)  # fmt: skip
_IDS = {name: place for place, name in enumerate(NAMES)}
END = _IDS["</s>"]
PROMPTS = {form: _IDS[opening(form)] for form in FORMS}
MOST_EXAMPLES = 5000
CHARACTER = (6, 11)  # width and height
_SHORTEST, _LONGEST = 3, 6
_LINE = 12  # from one line to the next
_DOCUMENT = {"item": "a" * _LONGEST, "price": "0.00"}
_LENGTHS = {"reading": 1 + _LONGEST + 1 + 4, "parsing": 1 + len(written(_DOCUMENT))}


@dataclass(frozen=True)
class Receipts(Task):
    """Receipts as patches `(b, m, patch²)` of brightness from 0 to 1 in ``source``, and what they
    say: a prompt token that tells the form, the characters, and "</s>", which ends them.

    form: "reading" (the lines) or "parsing" (the document; the default).
    words: "groceries", one of the forty words ``ITEMS``, or "letters", 3 to 6 letters at random,
        which can be read and not be guessed.
    examples: so many receipts make up the training split, the same for every seed of a batch, and
        the first of those that a larger number gives; all that there are if it is not given.
    shift: a line begins at most so many characters from the left (the default 2).
    patch: side of a patch: 2, 4 (the default: 72 patches), 6, 8 or 12.
    """

    form: str = "parsing"
    words: str = "groceries"
    examples: int | None = None
    shift: int = 2
    patch: int = 4
    name: ClassVar[str] = "receipts"
    kind: ClassVar[str] = "encoder_decoder"
    vocab: ClassVar[int] = len(NAMES)

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        check_choice("words", self.words, WORDS)
        self._check_sizes(shift=0, patch=1)
        if self.examples is not None:
            self._check_sizes(examples=1)
            if self.examples > MOST_EXAMPLES:
                raise ValueError(
                    f"examples should be at most {MOST_EXAMPLES:,}, got {self.examples:,}; leave "
                    "it out for all receipts that there are"
                )
        if self.patch not in (2, 4, 6, 8, 12):
            raise ValueError(f"patch should be 2, 4, 6, 8 or 12, got {self.patch}")
        room = WIDTH // CHARACTER[0] - _LONGEST
        if self.shift > room:
            raise ValueError(
                f"shift should be at most {room}, so that the longest word fits, got {self.shift}"
            )

    @property
    def length(self) -> int:
        return _LENGTHS[self.form]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patches."""
        return HEIGHT // self.patch, WIDTH // self.patch

    @property
    def patches(self) -> int:
        """How many patches a receipt has."""
        return self.grid[0] * self.grid[1]

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, NAMES)

    def said(self, ids: Tensor | Sequence[int]) -> Any:
        """What tokens say: the document, or of a reading its lines as one text. The prompt may be
        missing, and what follows "</s>" is not read."""
        names = [name for name in self.tokens(ids) if name]
        names = names[names[:1] == [opening(self.form)] :]
        names = names[: names.index("</s>")] if "</s>" in names else names
        if self.form == "reading":
            return "".join("\n" if name == NEWLINE else name for name in names)
        return read(names)

    def places(self, split: str, size: int, seed: int) -> Tensor:
        """Where each answer of ``batch(split, size, seed)`` stands on its receipt: `(b, n, 2)`, row
        and column in pixels of the middle of the character that is asked for; NaN where the answer
        is no character."""
        return self._places(split, *self._begin(split, size, seed))

    def _places(self, split: str, size: int, generator: np.random.Generator) -> Tensor:
        """As `_draw`, of the same random numbers."""
        receipts = self._receipts(split, size, generator)
        found = np.full((size, self.length, 2), np.nan, dtype=np.float32)
        for row, receipt in zip(found, receipts, strict=True):
            marks = receipt.marks(self.form)
            row[: len(marks)] = marks
        return from_numpy(found)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        receipts = self._receipts(split, size, generator)
        images = np.stack([receipt.image() for receipt in receipts])
        source = from_numpy(_into_patches(images, self.patch))
        return _batch(
            [receipt.tokens(self.form) for receipt in receipts],
            self.length,
            source=source,
            source_padding=torch.ones(source.shape[:2], dtype=torch.bool),
        )

    def _receipts(self, split: str, size: int, generator: np.random.Generator) -> list["_Receipt"]:
        if split == "train" and self.examples is not None:
            pool = self._rows(split, MOST_EXAMPLES, np.random.default_rng(0))[: self.examples]
            rows = pool[generator.integers(len(pool), size=size)]
        else:
            rows = self._rows(split, size, generator)
        return [_Receipt.of(row, self.words) for row in rows.tolist()]

    def _rows(self, split: str, size: int, generator: np.random.Generator) -> np.ndarray:
        """Rows `(size, 13)`: the price in cents, the word's place in the list, the length and the
        letters of a random one, which line comes first, both shifts, the ink."""

        def sample(generator: np.random.Generator, rows: int) -> np.ndarray:
            return np.column_stack([
                generator.integers(1000, size=rows),
                generator.integers(len(ITEMS), size=rows),
                generator.integers(_SHORTEST, _LONGEST + 1, size=rows),
                generator.integers(len(_LETTERS), size=(rows, _LONGEST)),
                generator.integers(2, size=rows),
                generator.integers(self.shift + 1, size=(rows, 2)),
                generator.integers(4, size=rows),
            ])  # fmt: skip

        return draw_contents(split, size, generator, sample, self._deciding)

    def _deciding(self, rows: np.ndarray) -> np.ndarray:
        """The price and the word: nothing else decides the split of a receipt."""
        if self.words == "groceries":
            return rows[:, :2]
        letters = np.arange(_LONGEST) < rows[:, 2:3]
        return np.column_stack([rows[:, 0], rows[:, 2], np.where(letters, rows[:, 3:9], 0)])

    def _describe(self, batch: Batch) -> Example:
        assert batch.source is not None
        said = Receipts(form=self.form).said(batch.targets[0])
        shown = said.replace("\n", ", then ") if isinstance(said, str) else str(said)
        return Example(
            title=f"A receipt: {self.form}",
            description=f"From {self.patches} patches the model is to write: {shown}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=self.tokens(batch.targets[0]),
            image=_pixels(batch.source.numpy(), self.patch)[0],
        )


@dataclass(frozen=True)
class _Receipt:
    """One receipt: what it says and how it is printed."""

    item: str
    price: str
    item_first: bool
    shifts: tuple[int, int]
    ink: float

    @classmethod
    def of(cls, row: list[int], words: str) -> "_Receipt":
        cents, place, length, *rest = row
        letters, (order, *shifts, ink) = rest[:_LONGEST], rest[_LONGEST:]
        word = "".join(_LETTERS[each] for each in letters[:length])
        item = ITEMS[place] if words == "groceries" else word
        price = f"{cents // 100}.{cents % 100:02}"
        return cls(item, price, bool(order), (shifts[0], shifts[1]), 0.7 + 0.1 * ink)

    @property
    def lines(self) -> tuple[str, str]:
        return (self.item, self.price) if self.item_first else (self.price, self.item)

    def tokens(self, form: str) -> list[int]:
        """From the prompt to "</s>"."""
        if form == "reading":
            said = [*self.lines[0], NEWLINE, *self.lines[1]]
        else:
            said = written({"item": self.item, "price": self.price})
        return [PROMPTS[form], *(_IDS[name] for name in said), END]

    def marks(self, form: str) -> np.ndarray:
        """The middle `(n, 2)` of the character of each answer, row and column; NaN for others."""
        (wide, high), middles = CHARACTER, {}
        for number, (line, shift) in enumerate(zip(self.lines, self.shifts, strict=True)):
            row = number * _LINE + high / 2
            middles[line] = [(row, wide * (shift + at + 0.5)) for at in range(len(line))]
        nowhere, item, price = [(np.nan, np.nan)], middles[self.item], middles[self.price]
        if form == "reading":
            first_line, second_line = (middles[line] for line in self.lines)
            found = [*first_line, *nowhere, *second_line, *nowhere]
        else:
            found = [*nowhere, *price, *nowhere, *nowhere, *item, *nowhere, *nowhere]
        return np.array(found)

    def image(self) -> np.ndarray:
        """Brightness `(24, 48)`; white paper is 1."""
        paper = np.ones((HEIGHT, WIDTH), dtype=np.float32)
        for number, (line, shift) in enumerate(zip(self.lines, self.shifts, strict=True)):
            ink = drawn(line)
            top, left = number * _LINE, shift * CHARACTER[0]
            paper[top : top + ink.shape[0], left : left + ink.shape[1]] -= self.ink * ink
        return paper


@cache
def drawn(line: str) -> np.ndarray:
    """A line of text `(11, 6 · characters)`, 1 where there is ink, in Pillow's bitmap font."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ModuleNotFoundError as error:
        raise ImportError(
            "the task 'receipts' needs the package pillow, which is not installed, to draw its "
            "letters: pip install 'attnlab[documents]'",
            name="PIL",
        ) from error
    wide, high = CHARACTER
    image = Image.new("L", (wide * len(line), high))
    ImageDraw.Draw(image).text((0, 0), line, fill=255, font=ImageFont.load_default_imagefont())
    return (np.asarray(image) > 0).astype(np.float32)


def _batch(rows: Sequence[Sequence[int]], length: int, **source: Tensor) -> Batch:
    """Inputs and targets of rows that differ in length; the prompt is not asked for."""
    inputs = np.zeros((len(rows), length), dtype=np.int64)
    targets = np.full((len(rows), length), UNSCORED)
    for at, row in enumerate(rows):
        inputs[at, : len(row) - 1], targets[at, : len(row) - 1] = row[:-1], row[1:]
    real = np.arange(length) < np.array([[len(row) - 1] for row in rows])
    return Batch(from_numpy(inputs), from_numpy(targets), from_numpy(real), **source)


def _into_patches(images: np.ndarray, patch: int) -> np.ndarray:
    """Images `(b, 24, 48)` as patches `(b, m, patch²)` in reading order."""
    cut = images.reshape(-1, HEIGHT // patch, patch, WIDTH // patch, patch)
    return cut.transpose(0, 1, 3, 2, 4).reshape(len(images), -1, patch**2)


def _pixels(patches: np.ndarray, patch: int) -> np.ndarray:
    """The inverse of `_into_patches`."""
    cut = patches.reshape(-1, HEIGHT // patch, WIDTH // patch, patch, patch)
    return cut.transpose(0, 1, 3, 2, 4).reshape(-1, HEIGHT, WIDTH)
