"""The largest number of a set: one member decides, and its place in the row says nothing.

Sets of random numbers between 0 and 1, of `fewest` to `most` members, in no order. Lee, Lee, Kim,
Kosiorek, Choi, Teh, "Set Transformer", ICML 2019, arXiv:1810.00825, section 5.1, ask for the number
itself, of 1 to 10 members between 0 and 100; ``values`` gives their question. As a classifier the
answer is the range in which the number lies, of `levels` ranges of equal width.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.tasks import Batch, Example, Task


@dataclass(frozen=True)
class SetMaximum(Task):
    """Rows (b, n, 1) of `fewest` to `most` numbers, then zeros that are padding.

    All sizes are equally likely. With `fewest` = `most` nothing is padded.
    """

    fewest: int = 1
    most: int = 10
    levels: int = 10
    name: ClassVar[str] = "set_maximum"
    kind: ClassVar[str] = "classifier"
    features: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._check_sizes(fewest=1, most=1, levels=2)
        if self.most < self.fewest:
            raise ValueError(f"most={self.most} should be at least fewest={self.fewest}")

    @property
    def length(self) -> int:
        return self.most

    @property
    def classes(self) -> int:
        return self.levels

    def values(self, split: str, size: int, seed: int) -> tuple[Batch, Tensor]:
        """The rows of `batch`, and the largest number of each (b,)."""
        batch = self.batch(split, size, seed)
        return batch, batch.inputs[..., 0].amax(1)  # padding is 0, no number is below

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        counts = generator.integers(self.fewest, self.most, size, endpoint=True)
        numbers = generator.random((size, counts.max()), dtype=np.float32)
        real = np.arange(counts.max()) < counts[:, None]
        numbers *= real
        levels = (numbers.max(1) * self.levels).astype(np.int64)
        padding = None if self.fewest == self.most else from_numpy(real)
        return Batch(from_numpy(numbers[..., None]), from_numpy(levels), padding)

    def _describe(self, batch: Batch) -> Example:
        numbers, label = batch.inputs[0, :, 0], int(batch.targets[0])
        listed = ", ".join(f"{number:.2f}" for number in numbers.tolist())
        return Example(
            title=f"The largest of {len(numbers)} numbers",
            description=f"The largest of {listed} lies in range {label} of 0 to {self.levels - 1}.",
            labels=[str(label)],
        )
