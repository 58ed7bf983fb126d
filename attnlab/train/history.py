"""The history of a run, and the state that its callbacks receive."""

import math
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


@dataclass(repr=False)
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

    def __repr__(self) -> str:
        if not self.rows:
            return "History of no steps"
        first, last = self.rows[0], self.rows[-1]
        told = f"History of steps {first['step']:,} to {last['step']:,}: "
        told += f"loss {first['loss']:.3g} to {last['loss']:.3g}"
        evaluated = self.column("validation_loss")
        return told + (f", validation loss {evaluated[-1]:.3g}" if evaluated else "")

    def _repr_html_(self) -> str:
        """The loss as a small curve above the same words."""
        return f"{_curve(self.column('loss'))}<div>{self!r}</div>"


def _curve(losses: list[float], width: int = 320, height: int = 80) -> str:
    """An SVG in the page's colour; a place where the loss is not finite is left out."""
    thinned = list(enumerate(losses))[:: len(losses) // width + 1]
    kept = [(step, loss) for step, loss in thinned if math.isfinite(loss)]
    if len(kept) < 2:
        return ""
    low, high = (extreme(loss for _, loss in kept) for extreme in (min, max))
    across, up = width / len(losses), (height - 4) / ((high - low) or 1)
    points = " ".join(f"{step * across:.1f},{2 + (high - y) * up:.1f}" for step, y in kept)
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="The loss at each step">'
        f'<polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
    )


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
