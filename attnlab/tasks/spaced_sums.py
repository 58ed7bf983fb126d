"""Spaced sums: choose numbers of a list, no two of them neighbours, with the largest sum.

    3 -1 5 2 =  1 2 1 2                                    1: chosen, 2: not chosen
    3 -1 5 2 =  2 5 5 8 1 2 1 2                            with ``scratchpad``

Dynamic programming solves it in one pass from the right (`computation.spaced_sum`): the best sum
from a place on is that of the next place, or this number and the best sum from two places on. A
pass from the left then chooses. With ``scratchpad`` the best sums are written, from the last place
to the first, before the choices. Of several best choices the lexicographically least is right.

The graph is a chain: its depth grows by two with each number, so a longer list asks for more steps
one after the other, not for other ones. Models can be trained on short lists and asked for longer.

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, section 2: the "maximum weighted independent set" of a list, values from -5 to 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab.structures.computation import Computation, spaced_sum
from attnlab.tasks import Batch, Example
from attnlab.tasks.sequences import enough_contents
from attnlab.tasks.worked import Question, Worked

LARGEST, LONGEST = 5, 10
_BEST = LARGEST * ((LONGEST + 1) // 2)
EQUALS = LARGEST + _BEST + 1
_FILLER = 99
_FILLED = 5  # numbers; so many places of a shorter list decide its split, those left with _FILLER


@dataclass(frozen=True)
class SpacedSums(Worked):
    """Lists of `fewest` to `most` numbers from -5 to 5 (at most 10), each length equally often.

    Tokens are the numbers from -5 to 25, the largest sum of all, and =; they are the same for all
    lengths. The list alone decides the split: none occurs in both, and it is the same for all
    `fewest` and `most`.
    """

    fewest: int = 4
    most: int = 5
    name: ClassVar[str] = "spaced_sums"
    names: ClassVar[tuple[str, ...]] = (*map(str, range(-LARGEST, _BEST + 1)), "=")

    def __post_init__(self) -> None:
        self._check_sizes(fewest=2, most=2)
        self._check_scratchpad()
        if not self.fewest <= self.most <= LONGEST:
            raise ValueError(
                f"fewest should be at most most, and most at most {LONGEST}, "
                f"got fewest={self.fewest} and most={self.most}"
            )
        enough_contents([2 * LARGEST + 1] * self.most, f"most={self.most}")

    @property
    def length(self) -> int:
        return (3 if self.scratchpad else 2) * self.most

    def computation(self, question: Sequence[int]) -> Computation:
        """The graph of the choices among the numbers of a list."""
        return spaced_sum(question)

    def asked(self, question: Sequence[int]) -> list[int]:
        """The tokens of a list."""
        if not 1 <= len(question) <= LONGEST or max(map(abs, question)) > LARGEST:
            raise ValueError(
                f"a question should be 1 to {LONGEST} numbers from -{LARGEST} to {LARGEST}, "
                f"got {list(question)}"
            )
        return [*(number + LARGEST for number in question), EQUALS]

    def answer(self, made: Computation) -> list[str]:
        """For each number whether it is chosen, from the first to the last."""
        return [node for node in made.computed if node.startswith("chosen")]

    def spelled(self, made: Computation, node: str, value: int) -> list[int]:
        """One token for each value."""
        return [value + LARGEST]

    def _read(self, made: Computation, node: str, tokens: Sequence[int]) -> int | None:
        return None if tokens[0] == EQUALS else tokens[0] - LARGEST

    def _question(self, contents: Sequence[int]) -> Question:
        return tuple(number - LARGEST for number in contents if number != _FILLER)

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        numbers = generator.integers(2 * LARGEST + 1, size=(rows, self.most))
        counts = generator.integers(self.fewest, self.most + 1, size=(rows, 1))
        return np.where(np.arange(self.most) < counts, numbers, _FILLER)

    def _deciding(self, rows: np.ndarray) -> np.ndarray:
        filled = np.full((len(rows), max(_FILLED, self.most)), _FILLER)
        filled[:, : self.most] = rows
        behind = (filled == _FILLER) & (np.arange(filled.shape[1]) >= _FILLED)
        return np.where(behind, 0, filled)

    def _describe(self, batch: Batch) -> Example:
        title = "Numbers without neighbours, of the largest sum"
        return self._described(batch, title, "{} is followed by {}, where 1 chooses a number.")
