"""Addition: write the sum of two decimal numbers.

    2 7 + 8 5 = 1 1 2        the most significant digit first
    7 2 + 5 8 = 2 1 1        reversed: the least significant digit first

Each digit of the answer needs one digit of each number, at a distance that follows from the number
of digits, and a carry. Reversed, the carry comes from the digit just written; otherwise it depends
on digits that are not yet written. N. Lee and others, "Teaching Arithmetic to Small Transformers",
ICLR 2024, arXiv:2307.03381, compare both orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.core.options import check_value
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, shifted

PLUS, EQUALS = 10, 11
_NAMES = (*"0123456789", "+", "=")


@dataclass(frozen=True)
class Addition(Task):
    """Two numbers of `digits` digits each (the first may be 0) and their sum, of one digit more.

    `reverse` writes all three numbers with the least significant digit first. Tokens are the ten
    digits, + and =. The two numbers decide the split: no pair of them occurs in both splits.
    """

    digits: int = 4
    reverse: bool = False
    name: ClassVar[str] = "addition"
    kind: ClassVar[str] = "language_model"

    def __post_init__(self) -> None:
        self._check_sizes(digits=2)
        check_value("reverse", self.reverse, bool)

    @property
    def vocab(self) -> int:
        return len(_NAMES)

    @property
    def length(self) -> int:
        return 3 * self.digits + 2

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, _NAMES)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        numbers = draw_contents(split, size, generator, self._sample)
        first, second = numbers[:, : self.digits], numbers[:, self.digits :]
        written = [first, second, total(first, second)]  # least significant digit first
        if not self.reverse:
            written = [number[:, ::-1] for number in written]
        plus, equals = np.full((size, 1), PLUS), np.full((size, 1), EQUALS)
        is_answer = np.arange(self.length + 1) > 2 * self.digits + 1
        parts = [written[0], plus, written[1], equals, written[2]]
        return Batch(*shifted(np.concatenate(parts, axis=1), is_answer))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        return generator.integers(10, size=(rows, 2 * self.digits))

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        asked = "".join(tokens[: 2 * self.digits + 2])
        order = "least" if self.reverse else "most"
        return Example(
            title=f"Adding numbers of {self.digits} digits",
            description=f"{asked}{''.join(labels)}, the {order} significant digit first.",
            tokens=tokens,
            labels=labels,
        )


def total(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The digits of first + second (b, digits + 1); of each, the least significant comes first."""
    digits = np.pad(first + second, ((0, 0), (0, 1)))
    for place in range(first.shape[1]):
        digits[:, place + 1] += digits[:, place] // 10
        digits[:, place] %= 10
    return digits
