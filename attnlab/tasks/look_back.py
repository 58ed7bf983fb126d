"""Look back: each token says how far back its answer stands."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attnlab.tasks import SPLITS, UNSCORED, Batch

LETTERS, FARTHEST, LENGTH, LONGER = 8, 16, 32, 256


@dataclass(frozen=True)
class LookBack:
    """The task: tokens are letter + 8 · (distance - 1), the answer is the letter so far back.

    Where the distance leads to before the beginning, nothing is asked.
    """

    length: int = LENGTH
    name: str = field(default="look_back", init=False)
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Texts of random letters and distances, those of the two splits from other seeds."""
        generator = torch.Generator().manual_seed(2 * seed + SPLITS.index(split))
        shape = (size, self.length)
        letters = torch.randint(LETTERS, shape, generator=generator)
        distances = torch.randint(1, FARTHEST + 1, shape, generator=generator)
        places = torch.arange(self.length) - distances
        answers = letters.gather(1, places.clamp(min=0)).masked_fill(places < 0, UNSCORED)
        return Batch(letters + LETTERS * (distances - 1), answers)

    def model_options(self) -> dict[str, Any]:
        """What a TinyTransformer needs to be built for it."""
        return {"vocab": LETTERS * FARTHEST, "max_len": LONGER, "kind": self.kind}

    def tokens(self, ids: Tensor) -> list[str]:
        """``c5``: the letter c, and the answer stands 5 tokens back."""
        return [f"{'abcdefgh'[i % LETTERS]}{distance_of(i)}" for i in ids.tolist()]


def distance_of(token: Any) -> Any:
    """How far back the answer to this token stands."""
    return token // LETTERS + 1
