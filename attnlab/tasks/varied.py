"""Varied: a task of many sizes, one size for each batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlab.tasks import Batch


@dataclass(frozen=True)
class Varied:
    """The task with one size for each batch, drawn from ``sizes``.

    of_size: the task of a size.
    """

    name: str
    of_size: Callable[[int], Any]
    sizes: Sequence[int]
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Sequences of one size, which the seed decides."""
        chosen = np.random.default_rng(seed).integers(len(self.sizes))
        found: Batch = self.of_size(self.sizes[int(chosen)]).batch(split, size, seed)
        return found
