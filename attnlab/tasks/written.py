"""Written: digits, pixel by pixel, in another order than line by line."""

from dataclasses import dataclass, field
from typing import Any

import torch

from attnlab.tasks import Batch
from attnlab.tasks.digits import Digits

SIDE = 8


@dataclass(frozen=True)
class Written:
    """The task: digits, their pixels in another order than line by line."""

    order: tuple[int, ...] = tuple(range(SIDE**2))
    name: str = field(default="digits", init=False)
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Any:
        """The inputs are a start token and 63 pixels, the targets all 64 pixels."""
        batch = _DIGITS.batch(split, size, seed)
        pixels = batch.targets[:, list(self.order)]
        return Batch(torch.cat([batch.inputs[:, :1], pixels[:, :-1]], dim=1), pixels)

    def model_options(self) -> dict[str, Any]:
        """What a TinyTransformer needs to be built for it."""
        return _DIGITS.model_options()


_DIGITS = Digits(unit="pixels", kind="language_model")
