"""Flat: a task on trees of which only the tokens are left."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from attnlab.structures.tree_batch import TreeBatch
from attnlab.tasks import Batch, Task


@dataclass(frozen=True)
class Flat:
    """A task on trees of which the tokens are left, each directly below the root."""

    of: Task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)

    def batch(self, split: str, size: int, seed: int) -> Batch:
        batch = self.of.batch(split, size, seed)
        return replace(batch, structure=flattened(batch.structure))


def flattened(structure: TreeBatch) -> TreeBatch:
    """The same tokens, each directly below the root of its tree."""
    padding, roots = structure.padding, structure.roots[:, None]
    below = padding & (torch.arange(padding.shape[1]) != roots)
    return TreeBatch.from_parents(torch.where(below, roots, -1), padding)
