"""Book: long rows of the Python documentation, with a needle in them or read twice."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch

from attnlab.tasks import UNSCORED, Batch
from attnlab.tasks.documentation import Documentation, topics_by_split

ROW, KEYS, PIECES = 128, 16, 512
ASK = PIECES + KEYS


@lru_cache
def book() -> tuple[Any, Any]:
    """The tokens of the documentation: those of the training topics, and all of them."""
    task = Documentation("bpe", bpe_size=PIECES)
    topics = topics_by_split()
    parts = [task.encode("\n\n".join(topics[x].values())).numpy() for x in ("train", "validation")]
    return parts[0], np.concatenate(parts)


@dataclass(frozen=True)
class Book:
    """Rows of ``length`` tokens of the book, with a needle or read twice; what ``fit`` asks for.

    ``first`` bounds where the needle stands; not given, it is in the first half.
    """

    name: str
    length: int = ROW
    first: int | None = None
    kind: ClassVar[str] = "language_model"

    def model_options(self) -> dict[str, Any]:
        return {"vocab": ASK + 1, "kind": self.kind}

    def batch(self, split: str, size: int, seed: int) -> Batch:
        draw = np.random.default_rng([seed, size, split == "train"])
        text = book()[0 if split == "train" else 1]
        width = self.length if self.name == "needle" else self.length // 2 + 1
        starts = draw.integers(len(text) - width, size=size)
        rows = np.stack([text[start : start + width] for start in starts])
        made = self._with_needle(rows, draw) if self.name == "needle" else self._twice(rows)
        return Batch(*map(torch.from_numpy, made))

    def _with_needle(self, rows: np.ndarray, draw: np.random.Generator) -> tuple[Any, Any]:
        size, n = rows.shape
        place: Any = draw.integers(1, self.first or n // 2, size=size)
        keys: Any = PIECES + draw.integers(KEYS, size=size)
        asks = (np.arange(n) > place[:, None]) & (draw.random(rows.shape) < 1 / 8)
        asks[:, -4:] = True
        rows = np.where(asks, ASK, rows)
        rows[np.arange(size), place] = keys
        return rows, np.where(asks, keys[:, None], UNSCORED)

    def _twice(self, rows: np.ndarray) -> tuple[Any, Any]:
        """The last token of the first reading is followed by the first, which nothing foretells."""
        once = rows[:, :-1]
        tokens = np.concatenate([once, once], axis=1)
        targets = np.full_like(tokens, UNSCORED)
        half = once.shape[1]
        targets[:, half:-1] = once[:, 1:]
        return tokens, targets
