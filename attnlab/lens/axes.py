"""Axes with an identity, followed through views.

To show the attention of any model, one must know which axis of a tensor is the batch, which the
heads and which the queries, after any number of views. An ``Axis`` is one axis
with an identity; a ``Layout`` says, for each dimension of a tensor, which axes are merged in it. A
view of ``(b·h, n, m)`` as ``(b, h, n, m)`` *splits* its first axis; the axis itself keeps its
parts, so that every tensor that has this axis knows them from then on.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


class Axis:
    """One axis of known size; ``parts`` are the two axes that a view has split it into, if any.

    ``heads``: a view of the result has shown that this axis is heads.
    """

    __slots__ = ("heads", "parts", "size")

    def __init__(self, size: int, heads: bool = False) -> None:
        self.size = size
        self.heads = heads
        self.parts: tuple[Axis, Axis] | None = None

    def leaves(self) -> tuple["Axis", ...]:
        """The axis itself, or the parts that it was split into."""
        if self.parts is None:
            return (self,)
        return self.parts[0].leaves() + self.parts[1].leaves()

    def split(self, first: int) -> tuple["Axis", "Axis"]:
        self.parts = (Axis(first, self.heads), Axis(self.size // first, self.heads))
        return self.parts


Layout = tuple[tuple[Axis, ...], ...]
"""For each dimension of a tensor the axes merged in it, slowest first; () where it broadcasts."""


def leaves(axes: Iterable[Axis]) -> list[Axis]:
    return [leaf for axis in axes for leaf in axis.leaves()]


def size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def fresh(shape: Sequence[int]) -> Layout:
    """A layout of new axes for ``shape``."""
    return tuple((Axis(length),) for length in shape)


def aligned(shape: Sequence[int], layout: Layout) -> Layout:
    """The layout of a tensor of ``shape`` that broadcasts against one of ``layout``."""
    tail = layout[len(layout) - len(shape) :]
    return tuple(
        axes if length == size(axes) else () for length, axes in zip(shape, tail, strict=True)
    )


def viewed(layout: Layout, shape: Sequence[int]) -> Layout | None:
    """The layout after a view as ``shape``, splitting axes where needed; None if it is
    not known."""
    left = leaves(axis for axes in layout for axis in axes)
    if size(left) != math.prod(shape) or 0 in shape:
        return None
    new = []
    for length in shape:
        taken = _take(left, length)
        if taken is None:
            return None
        new.append(taken)
    return tuple(new) if not left or not new else (*new[:-1], (*new[-1], *left))


def _take(left: list[Axis], length: int) -> tuple[Axis, ...] | None:
    """Takes axes from the front of ``left`` whose sizes multiply to ``length``."""
    taken: list[Axis] = []
    need = length
    while need > 1 or (not taken and left):
        axis = left.pop(0)
        if need % axis.size == 0:
            taken.append(axis)
            need //= axis.size
        elif axis.size % need == 0:
            first, rest = axis.split(need)
            taken.append(first)
            left.insert(0, rest)
            need = 1
        else:
            return None
    return tuple(taken)


PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


def permuted(layout: Layout, permute: Callable[[Tensor], Any]) -> Layout | None:
    """The layout after ``permute``, found by sending a tensor of distinct sizes through it."""
    if len(layout) > len(PRIMES):
        return None
    moved = permute(torch.empty(PRIMES[: len(layout)], device="meta"))
    return tuple(layout[PRIMES.index(length)] for length in moved.shape)


def arrange(
    tensor: Tensor, layout: Layout, groups: Sequence[Sequence[Axis]], expanded: Sequence[int] = ()
) -> Tensor:
    """``tensor`` with one dimension per group of axes, in that order.

    A group that the tensor does not have is a dimension of size 1, unless its index is in
    ``expanded``: then it is expanded. A view where strides allow it, a copy elsewhere.
    """
    own = leaves(axis for axes in layout for axis in axes)
    groups = [leaves(group) for group in groups]
    wanted = [axis for group in groups for axis in group]
    spare = [axis for axis in own if axis not in wanted]
    order = [own.index(axis) for axis in (*spare, *(a for a in wanted if a in own))]
    split = tensor.reshape([axis.size for axis in own]).permute(order)
    split = split.reshape(split.shape[len(spare) :])  # spare axes have size 1
    for position, axis in enumerate(wanted):
        if axis not in own:
            split = split.unsqueeze(position)
    grown: list[int] = []
    merged: list[int] = []
    for index, group in enumerate(groups):
        has = any(axis in own for axis in group) or index in expanded
        grown += [axis.size if has else 1 for axis in group]
        merged.append(size(group) if has else 1)
    return split.expand(grown).reshape(merged)
