"""Intervals of positions, and what a pattern allows between two of them.

A layout asks, for many blocks of queries and of keys at once, whether a pattern allows all, none or
some of their pairs. The positions of a block are kept as an interval: its first position, its last,
and the step between neighbours (0 for a single position). However long the block is, these are
three numbers, and a thousand blocks are three tensors; the question is then answered by interval
arithmetic. An interval may contain more positions than its block, so an answer can be "mixed" for a
block that is in fact full or empty; "full" and "empty" are always right.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Intervals:
    """Intervals of positions: three int64 tensors of one shape."""

    first: Tensor
    last: Tensor
    step: Tensor

    @classmethod
    def of(cls, positions: range) -> "Intervals":
        """The positions of a range that counts upwards, as one interval."""
        check_range("positions", positions)
        step = positions.step if len(positions) > 1 else 0
        return cls(*(torch.tensor(x) for x in (positions[0], positions[-1], step)))

    @classmethod
    def singles(cls, positions: Tensor) -> "Intervals":
        """An interval for each single position."""
        return cls(positions, positions, torch.zeros_like(positions))

    @classmethod
    def hull(cls, positions: Tensor) -> "Intervals":
        """The smallest interval that contains each row of positions (..., size)."""
        ordered = positions.sort(dim=-1).values
        step = torch.zeros_like(ordered[..., 0])
        for gap in (ordered[..., 1:] - ordered[..., :-1]).unbind(-1):
            step = torch.gcd(step, gap)
        return cls(ordered[..., 0], ordered[..., -1], step)

    @classmethod
    def blocks(cls, start: int, stop: int, size: int) -> "Intervals":
        """The positions start … stop − 1 in blocks of ``size``; the last one may be shorter."""
        first = torch.arange(start, stop, size)
        last = (first + size).clamp(max=stop) - 1
        return cls(first, last, (last > first).long())

    def __getitem__(self, index: object) -> "Intervals":
        return Intervals(self.first[index], self.last[index], self.step[index])  # type: ignore[index]

    def __floordiv__(self, size: int) -> "Intervals":
        """The indices of the blocks of ``size`` that the positions fall into."""
        first, last = self.first // size, self.last // size
        step = torch.where(self.step % size == 0, self.step // size, 1)
        return Intervals(first, last, torch.where(first == last, 0, step))

    @property
    def single(self) -> Tensor:
        """Where the interval is a single position."""
        return self.first == self.last


def check_range(name: str, positions: object) -> None:
    """A TypeError or a ValueError unless it is a range of positions that counts upwards."""
    if not isinstance(positions, range):
        raise TypeError(f"{name} should be a range, such as range(8, 16), got {positions!r}")
    if not positions or positions.step < 0:
        raise ValueError(f"{name} should count upwards and not be empty, got {positions}")


@dataclass(frozen=True)
class Coverage:
    """Which blocks of pairs a pattern allows, as two booleans for each block.

    ``every``: all pairs are allowed. ``some``: at least one pair may be allowed. A block is full
    where ``every`` is true and empty where ``some`` is false; otherwise it is mixed, or not known
    without evaluating its pairs. ``&``, ``|`` and ``~`` follow Kleene's three-valued logic.
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
