"""Number words: translate a number into English words.

    4 0 7      →  four hundred and seven
    6 0 1 3    →  six thousand and thirteen

The encoder reads the digits, the decoder writes the words. Which word belongs to a digit depends on
its place counted from the right (4 is "four", "forty" or nothing that is its own, as in 14), while
a model counts positions from the left: the digits must exchange information first. The names follow
British use: "and" stands before what is left of the hundreds. Of compound names such as forty-five
each part is a word, and there is no hyphen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS, UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, in_split

START, END = 10, 11
LONGEST = 4  # digits
_BELOW_TEN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thir", "four", "fif", "six", "seven", "eigh", "nine")
_BELOW_TWENTY = (*_BELOW_TEN, "ten", "eleven", "twelve", *(start + "teen" for start in _TEENS))
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NAMES = (*"0123456789", "start", "end", *_BELOW_TWENTY, *_TENS, "hundred", "thousand", "and")
_WORD_IDS = {word: place for place, word in enumerate(_NAMES)}


@dataclass(frozen=True)
class NumberWords(Task):
    """Numbers of one to `digits` digits (at most 4), each count of digits equally often.

    Tokens are the ten digits, "start", "end" and 31 words. The decoder's row is "start" and the
    words, filled up with "end"; a shorter number is filled up behind its digits with 0, which
    `source_padding` masks. The digits decide the split: no number occurs in both.
    """

    digits: int = 4
    name: ClassVar[str] = "number_words"
    kind: ClassVar[str] = "encoder_decoder"

    def __post_init__(self) -> None:
        self._check_sizes(digits=3)
        if self.digits > LONGEST:
            raise ValueError(
                f"digits should be 3 or 4, got {self.digits}: larger names are unknown"
            )

    @property
    def vocab(self) -> int:
        return len(_NAMES)

    @property
    def length(self) -> int:
        return 1 + {3: 5, 4: 7}[self.digits]  # "end" is answered, never read

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, _NAMES)

    def sentence(self, ids: Tensor | Sequence[int]) -> str:
        """The words of a row, from behind "start" to the first "end"."""
        said = self.tokens(ids)
        said = said[: said.index("end")] if "end" in said else said
        return " ".join(word for word in said if word not in ("start", ""))

    def numbers(self, split: str) -> list[int]:
        """All numbers of `split`, from the smallest to the largest."""
        check_choice("split", split, SPLITS)
        every = np.arange(10**self.digits)
        return every[in_split(self._written(every), split)].tolist()

    def of(self, numbers: Sequence[int]) -> Batch:
        """The batch of these numbers, in their order."""
        known = [check_integer("a number", each, at_least=0) for each in numbers]
        if not known or max(known) >= 10**self.digits:
            raise ValueError(
                f"numbers should be one or more from 0 to {10**self.digits - 1}, got {known}"
            )
        return self._batch(self._written(np.array(known)))

    def _written(self, numbers: np.ndarray) -> np.ndarray:
        """How many digits, and the digits, filled up with 0 behind (rows, 1 + digits)."""
        counts = np.maximum(1, (numbers[:, None] >= 10 ** np.arange(self.digits)).sum(1))
        places = counts[:, None] - 1 - np.arange(self.digits)
        found = numbers[:, None] // 10 ** np.maximum(places, 0) % 10
        return np.concatenate([counts[:, None], np.where(places >= 0, found, 0)], axis=1)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        return self._batch(draw_contents(split, size, generator, self._sample))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        counts = generator.integers(1, self.digits + 1, size=rows)
        least = np.where(counts > 1, 10 ** (counts - 1), 0)
        return self._written(generator.integers(least, 10**counts))

    def _batch(self, contents: np.ndarray) -> Batch:
        places = np.arange(self.digits)
        counts, digits = contents[:, :1], contents[:, 1:]
        real = places < counts
        numbers = np.where(real, digits * 10 ** np.maximum(counts - 1 - places, 0), 0).sum(1)
        said = [[_WORD_IDS[word] for word in words(number)] for number in numbers.tolist()]
        rows = [[START, *row] + [END] * (self.length - len(row)) for row in said]
        sequence = torch.tensor(rows)
        ends = torch.tensor([len(row) for row in said])[:, None]  # where "end" is the answer
        read = torch.arange(self.length) <= ends
        return Batch(
            sequence[:, :-1],
            sequence[:, 1:].masked_fill(~read, UNSCORED),
            padding=read,
            source=torch.from_numpy(np.ascontiguousarray(digits)),
            source_padding=torch.from_numpy(real),
        )

    def _describe(self, batch: Batch) -> Example:
        assert batch.source is not None
        assert batch.source_padding is not None
        labels = self.tokens(batch.targets[0])
        digits = self.tokens(batch.source[0][batch.source_padding[0]])
        answer = " ".join(label for label in labels if label not in ("", "end"))
        return Example(
            title=f"The number {''.join(digits)} in words",
            description=f"{''.join(digits)} is to be written in words: {answer}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=labels,
            source=digits,
        )


def words(number: int) -> list[str]:
    """The English name of a number from 0 to 9,999, word by word.

    >>> words(407)
    ['four', 'hundred', 'and', 'seven']
    """
    number = check_integer("number", number, at_least=0)
    if number >= 10**LONGEST:
        raise ValueError(f"number should be at most 9,999, got {number}")
    thousands, below = divmod(number, 1000)
    hundreds, rest = divmod(below, 100)
    said = [_BELOW_TWENTY[thousands], "thousand"] if thousands else []
    if hundreds:
        said += [_BELOW_TWENTY[hundreds], "hundred"]
    if rest and said:
        said += ["and"]
    if rest or not said:
        said += _below_hundred(rest)
    return said


def _below_hundred(number: int) -> list[str]:
    if number < 20:
        return [_BELOW_TWENTY[number]]
    tens, units = divmod(number, 10)
    return [_TENS[tens - 2], *([_BELOW_TWENTY[units]] if units else [])]
