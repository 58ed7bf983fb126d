"""The history of a run, and the state that its callbacks receive."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from attnlab.core.suggest import check_choice
from attnlab.train.task import Task

COLUMNS = (
    *("step", "loss", "learning_rate", "gradient_norm", "tokens", "tokens_per_second"),
    *("validation_loss", "validation_accuracy"),
)


@dataclass
class History:
    """One plain dict per step: step, loss, learning_rate, gradient_norm (before clipping),
    tokens (read so far), tokens_per_second (real tokens of all processes over the wall clock of
    this step, fetching the batch included), and validation_loss and validation_accuracy where it
    was evaluated."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        """The values of one column, for the rows that have it."""
        check_choice("column", name, COLUMNS)
        return [row[name] for row in self.rows if name in row]


@dataclass(frozen=True)
class State:
    """What a callback receives after each step."""

    step: int
    steps: int
    loss: float
    model: nn.Module
    task: Task
    history: History
    device: torch.device


Callback = Callable[[State], object]
