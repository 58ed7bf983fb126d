"""Products: multiply two decimal numbers, digit by digit.

    3 7 × 4 8 = 1 7 7 6                              the answer alone
    3 7 × 4 8 = 5 6 6 5 2 4 2 9 9 2 2 9 6 … 1 7 7 6  every step before it, with ``scratchpad``

The steps are those that one does by hand (`attnlab.structures.computation.product`): for each digit
of the second number, from the last, each digit of the first is multiplied (56), its last digit is
written (6) and its carry kept (5); the digits make a line (296), and the lines are added up, each
shifted by its place. The answer is written with the most significant digit first.

The last digit of the answer follows from the last digits of the factors alone, and the first one
nearly from the first digits, while a digit in the middle depends on all: a model can be right in
some places without multiplying (`relative_information_gain` says how far).

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, section 2. Departures: steps are written as numbers of a fixed width, without
words between them, and a carry of 0 is a step, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab.structures.computation import Computation, product
from attnlab.tasks import Batch, Example
from attnlab.tasks.sequences import enough_contents
from attnlab.tasks.worked import Question, Worked

TIMES, EQUALS = 10, 11
MOST = 8  # digits; a graph has more than (3 · 8)² nodes then


@dataclass(frozen=True)
class Products(Worked):
    """A number of `first` digits times one of `second` digits; both may begin with 0.

    Tokens are the ten digits, × and =. The two numbers decide the split: no pair of them occurs in
    both. Raises ValueError for fewer than three digits in all, of which there are too few pairs.
    """

    first: int = 2
    second: int = 2
    name: ClassVar[str] = "products"
    names: ClassVar[tuple[str, ...]] = (*"0123456789", "×", "=")

    def __post_init__(self) -> None:
        self._check_sizes(first=1, second=1)
        self._check_scratchpad()
        options = f"first={self.first} and second={self.second}"
        enough_contents([10] * (self.first + self.second), options)
        if max(self.first, self.second) > MOST:
            raise ValueError(f"first and second should be at most {MOST}, got {options}")

    @property
    def length(self) -> int:
        zeros = (0,) * (self.first + self.second)
        return len(self.asked(zeros)) + len(self._solved(zeros)) - 1

    def computation(self, question: Sequence[int]) -> Computation:
        """The graph of a product, from the digits of both numbers."""
        return product(*self._numbers(question))

    def asked(self, question: Sequence[int]) -> list[int]:
        """The tokens of a question, from the digits of both numbers."""
        first, second = self._numbers(question)
        return [*first, TIMES, *second, EQUALS]

    def answer(self, made: Computation) -> list[str]:
        """The digits of the result, the most significant first."""
        return [f"digit {place}" for place in reversed(range(self.first + self.second))]

    def spelled(self, made: Computation, node: str, value: int) -> list[int]:
        """The decimal digits of a value, filled up with zeros in front."""
        return [value // 10**place % 10 for place in reversed(range(self._width(node)))]

    def _width(self, node: str) -> int:
        what, *places = node.split()
        if what in ("product", "sum"):
            return 2
        return {"line": self.first + 1, "total": self.first + 1 + int(places[0])}.get(what, 1)

    def _read(self, made: Computation, node: str, tokens: Sequence[int]) -> int | None:
        if max(tokens) > 9:
            return None
        return int("".join(map(str, tokens)))

    def _numbers(self, question: Sequence[int]) -> tuple[list[int], list[int]]:
        if len(question) != self.first + self.second:
            raise ValueError(
                f"a question should be the {self.first + self.second} digits of both numbers, "
                f"got {list(question)}"
            )
        return list(question[: self.first]), list(question[self.first :])

    def _question(self, contents: Sequence[int]) -> Question:
        return tuple(contents)

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        return generator.integers(10, size=(rows, self.first + self.second))

    def _deciding(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def _describe(self, batch: Batch) -> Example:
        title = f"Multiplying a number of {self.first} digits by one of {self.second}"
        return self._described(batch, title, "{} is followed by {}.")
