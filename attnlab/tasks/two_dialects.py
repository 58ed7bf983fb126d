"""Two dialects: the same sentence has two equally good translations.

    3 1 4   →   c b d    or    C B D

A sentence of random words is translated word by word, and each word has one name in dialect A (c)
and one in dialect B (C). Who tosses the coin decides how the words of a translation depend on each
other, while each word alone is always half c and half C:

==============  ===================================================  ===============  ============
`coin`          a translation of N words                             H(Y | X)         C(Y | X)
==============  ===================================================  ===============  ============
`"sentence"`    is all in A or all in B                              ln 2             (N − 1) ln 2
`"word"`        has each word in A or in B, whatever the others are  N ln 2           0
`"source"`      is in A if its first word is an even number          0                0
==============  ===================================================  ===============  ============

C is the conditional total correlation: what a model loses that writes all words at once, each
without the others. Nothing but the coin differs between the three.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from attnlab.core.suggest import check_choice
from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, enough_contents, letters

COINS = ("sentence", "word", "source")
MOST_TRANSLATIONS = 2**12


@dataclass(frozen=True)
class TwoDialects(Task):
    """Translate `words` words (at least `shortest`, if it is given), of `symbols` different ones.

    Tokens are the words of the source, their names in dialect A, in dialect B, and "start". The
    decoder's row is "start" and the translation. The source decides the split.
    """

    words: int = 6
    symbols: int = 8
    shortest: int | None = None
    coin: Literal["sentence", "word", "source"] = "sentence"
    name: ClassVar[str] = "two_dialects"
    kind: ClassVar[str] = "encoder_decoder"

    def __post_init__(self) -> None:
        self._check_sizes(words=1, symbols=2)
        check_choice("coin", self.coin, COINS)
        if self.shortest is not None:
            self._check_sizes(shortest=1)
            if self.shortest > self.words:
                raise ValueError(
                    f"shortest={self.shortest} is more than words={self.words}, which is the "
                    "longest sentence"
                )
        options = f"words={self.words} and symbols={self.symbols}"
        enough_contents(itertools.repeat(self.symbols, self.words), options)

    @property
    def vocab(self) -> int:
        return 3 * self.symbols + 1

    @property
    def start(self) -> int:
        """The token with which a decoder begins."""
        return 3 * self.symbols

    @property
    def length(self) -> int:
        return self.words

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        lower = letters(self.symbols, "w")
        numbers = [str(number) for number in range(self.symbols)]
        return display_names(ids, [*numbers, *lower, *(each.upper() for each in lower), "start"])

    def dialects(self, source: Tensor) -> Tensor:
        """Both translations (b, 2, n) of sources (b, n), all in A and all in B."""
        return torch.stack([source + self.symbols, source + 2 * self.symbols], 1)

    def translations(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """All translations (b, k, n) of sources (b, n), and their probabilities (b, k), so that
        what is exact can be computed: entropies, and what a model can reach."""
        b, n = source.shape
        both = self.dialects(source)
        if self.coin == "sentence":
            return both, torch.full((b, 2), 0.5, dtype=torch.float64)
        if self.coin == "source":
            told = torch.nn.functional.one_hot(source[:, 0] % 2, 2)
            return both, told.double()
        if 2**n > MOST_TRANSLATIONS:
            raise ValueError(
                f"a sentence of {n} words has {2**n} translations, more than {MOST_TRANSLATIONS}; "
                "take shorter ones"
            )
        choices = torch.cartesian_prod(*[torch.arange(2)] * n).reshape(-1, n)
        every = source[:, None] + self.symbols * (1 + choices)
        return every, torch.full((b, 2**n), 2.0**-n, dtype=torch.float64)

    def right(self, source: Tensor, written: Tensor, real: Tensor | None = None) -> Tensor:
        """Which of the written sentences (b, n) are a translation of their source, (b,).

        real: the words of each source, if not all (b, n).
        """
        real = torch.ones_like(source, dtype=torch.bool) if real is None else real
        in_dialect = (written[:, None] == self.dialects(source)) | ~real[:, None]
        if self.coin == "word":
            return in_dialect.any(1).all(-1)
        whole = in_dialect.all(-1)
        if self.coin == "sentence":
            return whole.any(-1)
        return whole.gather(1, source[:, :1] % 2)[:, 0]

    def entropy(self) -> float:
        """H(Y | X) of a sentence of `words` words, in nats."""
        return {"sentence": 1, "word": self.words, "source": 0}[self.coin] * math.log(2)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        contents = draw_contents(split, size, generator, self._sample)
        counts, source = (torch.from_numpy(x.copy()) for x in (contents[:, 0], contents[:, 1:]))
        real = torch.arange(self.words) < counts[:, None]
        tossed = torch.from_numpy(generator.integers(2, size=(size, self.words)))
        if self.coin == "sentence":
            tossed = tossed[:, :1].expand(-1, self.words)
        elif self.coin == "source":
            tossed = source[:, :1] % 2
        target = source + self.symbols * (1 + tossed)
        before = target.roll(1, 1)
        before[:, 0] = self.start
        padding = None if self.shortest is None else real
        return Batch(
            before,
            target.masked_fill(~real, UNSCORED),
            padding=padding,
            source=source,
            source_padding=padding,
        )

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        """How many words, and the words, filled up with 0 behind (rows, 1 + words)."""
        least = self.words if self.shortest is None else self.shortest
        counts = generator.integers(least, self.words + 1, size=(rows, 1))
        drawn = generator.integers(self.symbols, size=(rows, self.words))
        return np.concatenate([counts, np.where(np.arange(self.words) < counts, drawn, 0)], axis=1)

    def _describe(self, batch: Batch) -> Example:
        assert batch.source is not None
        scored = batch.targets[0] != UNSCORED
        source = self.tokens(batch.source[0][scored])
        labels = self.tokens(batch.targets[0])
        said, wanted = " ".join(source), " ".join(filter(None, labels))
        return Example(
            title=f"{said} in one of two dialects",
            description=f"{said} is to be translated; here the answer is {wanted}.",
            tokens=self.tokens(batch.inputs[0]),
            labels=labels,
            source=source,
        )
