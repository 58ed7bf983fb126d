"""Arrows: every cell of a grid of random colours is asked for the colour of another cell."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnlab.tasks import SPLITS, UNSCORED, Batch

FIELD, COLOURS = 6, 4  # cells on a side; how many colours a cell may have


@dataclass(frozen=True)
class Arrows:
    """The task: cells of random colours; the target of each is the colour of another cell."""

    points: str = "neighbour"
    name: str = field(default="arrows", init=False)
    kind: str = field(default="language_model", init=False)

    def goals(self) -> Tensor:
        """Where each cell points: (n,), −1 where that is outside of the grid."""
        cell = torch.arange(FIELD**2)
        if self.points == "across":
            return cell.flip(0)
        up_left = cell - FIELD - 1
        return torch.where((cell >= FIELD) & (cell % FIELD > 0), up_left, -1)

    def batch(self, split: Any, size: int, seed: int) -> Any:
        """Splits differ by their random draws; of 4³⁶ grids, repeats are practically impossible."""
        generator = torch.Generator().manual_seed(2 * seed + SPLITS.index(split))
        colours = torch.randint(COLOURS, (size, FIELD**2), generator=generator)
        goals = self.goals()
        return Batch(colours, torch.where(goals < 0, UNSCORED, colours[:, goals.clamp(min=0)]))

    def model_options(self) -> dict[str, Any]:
        """What a TinyTransformer needs to be built for it."""
        return {"vocab": COLOURS, "kind": self.kind, "max_len": FIELD**2}
