"""Returning: a passage of the Python documentation, other text, and the same passage again.

    passage … other text … passage …

What the text says next depends on the tokens just before. What the passage says when it returns
stands `length` / 3 · 2 tokens back, where no window that is shorter reaches. So one training shows
both: the loss on text, and the loss on what returns.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from attnlab.tasks import Batch
from attnlab.tasks.repeats import documentation


@dataclass(frozen=True)
class Returning:
    """Rows of 3 · ``passage`` tokens; the last third repeats the first. Each target is the next
    token."""

    passage: int = 32
    pieces: int = 512
    name: str = field(default="returning", init=False)
    kind: str = field(default="language_model", init=False)

    @property
    def length(self) -> int:
        """The tokens of a row that are read."""
        return 3 * self.passage - 1

    @property
    def vocab(self) -> int:
        """The number of pieces."""
        return self.pieces

    def batch(self, split: str, size: int, seed: int) -> Batch:
        """Two thirds of each row are text of the split, of which no passage is in the other."""
        text = documentation(2 * self.passage, self.pieces).batch(split, size, seed)
        first = text.inputs
        rows = torch.cat((first, first[:, : self.passage]), dim=1)
        return Batch(rows[:, :-1], rows[:, 1:])

    def model_options(self) -> dict[str, Any]:
        """What a TinyTransformer needs to be built for it."""
        return {"vocab": self.pieces, "max_len": 4 * self.passage, "kind": self.kind}
