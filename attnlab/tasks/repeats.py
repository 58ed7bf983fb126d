"""Repeats: windows of the Python documentation, of which a half repeats something to the end."""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from attnlab.tasks import Batch
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.induction import Induction


@dataclass(frozen=True)
class Repeats:
    """The task; ``repeats`` says what a half of the windows is replaced by.

    none: nothing is replaced.
    passages: each window's first tokens, a quarter to a half of it, again and again.
    random tokens: the task `attnlab.tasks.induction`.
    beginnings: each window's first tokens, 16 up to a half of it, again and again, short ones as
        often as long ones (the logarithm of their length is drawn).
    """

    repeats: str = "none"
    length: int = 64
    pieces: int = 512
    name: str = field(default="documentation", init=False)
    kind: str = field(default="language_model", init=False)

    def batch(self, split: str, size: int, seed: int) -> Batch:
        """The first half of the rows is replaced."""
        text = documentation(self.length, self.pieces).batch(split, size, seed)
        count = size // 2
        if self.repeats == "none" or not count:
            return text
        if self.repeats == "random tokens":
            other = Induction(self.length, self.pieces).batch(split, count, seed)
            inputs, targets = other.inputs, other.targets
        else:
            rows = torch.cat([text.inputs, text.targets[:, -1:]], dim=1)[:count]
            rows = rows.gather(1, torch.arange(rows.shape[1]) % self._runs(count, seed))
            inputs, targets = rows[:, :-1], rows[:, 1:]
        return Batch(
            torch.cat([inputs, text.inputs[count:]]), torch.cat([targets, text.targets[count:]])
        )

    def _runs(self, count: int, seed: int) -> Tensor:
        """How many tokens repeat, of each row (count, 1)."""
        drawn = torch.Generator().manual_seed(seed)
        if self.repeats == "passages":
            quarter, half = self.length // 4, self.length // 2
            return torch.randint(quarter, half + 1, (count, 1), generator=drawn)
        most = (self.length + 1) // 2
        return (16 * (most / 16) ** torch.rand(count, 1, generator=drawn)).long()


@lru_cache(maxsize=4)
def documentation(length: int, pieces: int) -> Documentation:
    """The text, in so many pieces of byte-pair encoding."""
    return Documentation("bpe", length=length, bpe_size=pieces)
