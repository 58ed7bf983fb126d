"""Whole topics of the Python documentation, to be read from start to end.

``documentation`` gives windows that begin anywhere. Here a row is a document: a topic, or a part of
one that is longer than ``length`` + 1 tokens. ``fit(…, segment=…)`` reads documents in segments,
and a model that carries a state from one to the next can use what stands far back in its topic.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS, UNSCORED, Batch, Example
from attnlab.tasks.documentation import Documentation, topics_by_split


@dataclass(frozen=True)
class Topics(Documentation):
    """Rows of different lengths, whole documents; each target is the next token.

    Args:
        length: positions of the longest document; of a longer topic each part of so many is a
            document of its own.
        unit, bpe_size, vocabulary: as for `Documentation`.
    """

    length: int = 4096
    name: ClassVar[str] = "topics"

    def documents(self, split: str) -> list[Tensor]:
        """The tokens (n,) of each document of `split`, 2 to `length` + 1 of them."""
        check_choice("split", split, SPLITS)
        return [document.clone() for document in _documents(self, split)]

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        every = _documents(self, split)
        rows = [every[which] for which in generator.integers(len(every), size=size)]
        inputs = pad_sequence([row[:-1] for row in rows], batch_first=True)
        targets = pad_sequence([row[1:] for row in rows], batch_first=True, padding_value=UNSCORED)
        real = targets != UNSCORED
        return Batch(inputs, targets, None if real.all() else real)

    def _describe(self, batch: Batch) -> Example:
        shown = super()._describe(batch)
        kind = "bytes" if self.unit == "bytes" else "BPE pieces"
        title = f"{batch.inputs.shape[1]} {kind}, a document of the Python documentation"
        return Example(title, shown.description, shown.tokens, shown.labels)

    def _check_length(self) -> None:
        """Any length goes: it only bounds the documents."""


@lru_cache(maxsize=8)
def _documents(task: Topics, split: str) -> list[Tensor]:
    texts = [task.encode(text) for text in topics_by_split()[split].values()]
    parts = [
        tokens[start : start + task.length + 1]
        for tokens in texts
        for start in range(0, len(tokens) - 1, task.length)
    ]
    return [torch.as_tensor(part) for part in parts]
