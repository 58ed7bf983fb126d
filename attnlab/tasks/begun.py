"""Begun: another task, with one token more at the beginning of every sequence."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from attnlab.tasks import UNSCORED, Batch, Task


@dataclass(frozen=True)
class Begun:
    """The task with one token more, which stands at the beginning of every sequence."""

    task: Task
    kind: str = field(default="language_model", init=False)

    @property
    def length(self) -> int:
        return self.task.length

    @property
    def vocab(self) -> int:
        assert self.task.vocab is not None
        return self.task.vocab + 1

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        found = self.task.batch(split, size, seed)
        inputs = nn.functional.pad(found.inputs, (1, 0), value=self.vocab - 1)
        return Batch(inputs, nn.functional.pad(found.targets, (1, 0), value=UNSCORED))
