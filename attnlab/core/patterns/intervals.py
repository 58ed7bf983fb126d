"""Intervals: blocks of positions, known by their first, their last and their step.

A layout asks of many blocks at once whether a pattern allows all, none or some of their pairs. It
gets its answer by interval arithmetic, so a block is three numbers, however long it is, and a
thousand blocks are three tensors. The positions of a span are first, first + step, … last; a single
position has step 0. A span may be wider than the positions it stands for: answers about it are then
cautious, never wrong.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Intervals:
    """Intervals of positions, int64 tensors of one shape."""

    first: Tensor
    last: Tensor
    step: Tensor

    @classmethod
    def of(cls, positions: range) -> "Intervals":
        """One span, the positions of a range that counts upwards."""
        step = positions.step if len(positions) > 1 else 0
        return cls(*(torch.tensor(x) for x in (positions[0], positions[-1], step)))

    @classmethod
    def singles(cls, positions: Tensor) -> "Intervals":
        """Every position a span of its own."""
        return cls(positions, positions, torch.zeros_like(positions))

    @classmethod
    def hull(cls, positions: Tensor) -> "Intervals":
        """The narrowest span around each row of positions (..., size)."""
        ordered = positions.sort(dim=-1).values
        step = torch.zeros_like(ordered[..., 0])
        for gap in (ordered[..., 1:] - ordered[..., :-1]).unbind(-1):
            step = torch.gcd(step, gap)
        return cls(ordered[..., 0], ordered[..., -1], step)

    @classmethod
    def blocks(cls, start: int, stop: int, size: int) -> "Intervals":
        """The positions start … stop − 1, cut into blocks of a size; the last may be shorter."""
        first = torch.arange(start, stop, size)
        last = (first + size).clamp(max=stop) - 1
        return cls(first, last, (last > first).long())

    def __getitem__(self, index: object) -> "Intervals":
        return Intervals(self.first[index], self.last[index], self.step[index])  # type: ignore[index]

    def __floordiv__(self, size: int) -> "Intervals":
        """The blocks of a size that the positions fall into."""
        first, last = self.first // size, self.last // size
        step = torch.where(self.step % size == 0, self.step // size, 1)
        return Intervals(first, last, torch.where(first == last, 0, step))

    @property
    def single(self) -> Tensor:
        return self.first == self.last


@dataclass(frozen=True)
class Coverage:
    """What a pattern allows of blocks of pairs: ``every`` pair, or ``some`` (any at all, perhaps).

    Kleene's three values: full is ``every``, empty is ``~some``, the rest is mixed or not known
    unlooked. ``some`` may be true of an empty block, and ``every`` false of a full one; never the
    other way round.
    """

    every: Tensor
    some: Tensor

    def __and__(self, other: "Coverage") -> "Coverage":
        return Coverage(self.every & other.every, self.some & other.some)

    def __or__(self, other: "Coverage") -> "Coverage":
        return Coverage(self.every | other.every, self.some | other.some)

    def __invert__(self) -> "Coverage":
        return Coverage(~self.some, ~self.every)

    @classmethod
    def known(cls, answer: Tensor) -> "Coverage":
        """Full where the answer is true, empty where it is not."""
        return cls(answer, answer)
