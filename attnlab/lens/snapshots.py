"""Snapshots of tensors at the time of recording, and the meaning of their axes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from attnlab.core.patterns import Pattern
from attnlab.lens.axes import Axis, Layout, arrange, leaves

BLOCKED = -1e4
"""An additive entry at or below this counts as "may not attend" in ``Attention.mask``: its weight
is exactly zero in every float format, unless the whole row is blocked in the same way."""

ROWS_OR_HEADS = (
    "its rows are merged with its heads in the result: perhaps they are heads that share a key "
    "head, all of one query"
)

Keep = Literal["copy", "cpu"] | None


class Snapshot:
    """A tensor as it was when it was recorded, with the meaning of its dimensions.

    It is a detached view. PyTorch counts the in-place changes of a tensor, so a later change is
    noticed. Tensors made under ``torch.inference_mode`` have no such count: they are copied.
    """

    def __init__(self, tensor: Tensor, layout: Layout) -> None:
        self.tensor = copied(tensor.detach()) if tensor.is_inference() else tensor.detach()
        self.layout = layout
        self._version = _version(self.tensor)

    def unchanged(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` still has the values that it had when it was recorded."""
        if tensor.is_inference():
            return tensor is self.tensor or torch.equal(tensor, self.tensor)
        return _version(tensor) == self._version

    def kept(self, keep: Keep) -> "Snapshot":
        if keep is None or not self.unchanged(self.tensor):
            return self  # the old values are lost already; reading them is an error
        device = torch.device("cpu") if keep == "cpu" else None
        return Snapshot(copied(self.tensor, device), self.layout)

    def arranged(self, groups: Sequence[Sequence[Axis]], expanded: Sequence[int] = ()) -> Tensor:
        return arrange(self._read(), self.layout, groups, expanded)

    def has(self, axes: Sequence[Axis]) -> bool:
        """Whether one of ``axes`` is an axis of this tensor."""
        own = leaves(axis for merged in self.layout for axis in merged)
        return any(axis in own for axis in leaves(axes))

    def _read(self) -> Tensor:
        if not self.unchanged(self.tensor):
            raise RuntimeError(
                "this tensor was changed in place after it was seen (a key/value cache, an "
                'optimiser step?), so its old values are gone; watch(model, keep="copy") keeps them'
            )
        return self.tensor

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle has the present values, and a change count of its own."""
        return Snapshot, (copied(self._read()), self.layout)


def _version(tensor: Tensor) -> int:
    """How often the tensor was changed in place; 0 for inference tensors, which do not count."""
    return 0 if tensor.is_inference() else tensor._version


def copied(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    """A copy; dimensions that were expanded in ``tensor`` are expanded in the copy, too."""
    small = tensor
    for dim, (stride, length) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride == 0 and length > 1:
            small = small.narrow(dim, 0, 1)
    return small.to(device or tensor.device, copy=True).expand(tensor.shape)


@dataclass(frozen=True)
class Roles:
    """Which axes are batch, heads, queries, keys, width and value width."""

    batch: tuple[Axis, ...]
    heads: tuple[Axis, ...]
    queries: tuple[Axis, ...]
    keys: tuple[Axis, ...]
    width: tuple[Axis, ...]
    value_width: tuple[Axis, ...] = ()
    doubts: list[str] = field(default_factory=list, compare=False)
    """What the later use of the result has shown to be doubtful, in sentences."""

    def groups(self) -> tuple[list[Axis], list[Axis], list[Axis], list[Axis]]:
        """Batch, heads, queries, keys.

        An axis that the model itself merged with the values' width is heads. Without such a view
        a merged batch·heads axis that was split gives both, in this order.
        """
        batch, heads = leaves(self.batch), leaves(self.heads)
        if any(axis.heads for axis in batch):
            every = (*batch, *heads)
            batch, heads = [a for a in every if not a.heads], [a for a in every if a.heads]
        elif not heads and len(batch) > 1:
            batch, heads = batch[:-1], batch[-1:]
        queries = leaves(self.queries)
        heads += [a for a in queries if a.heads]  # heads below one another in the rows
        return batch, heads, [a for a in queries if not a.heads], leaves(self.keys)

    def show_heads(self, layout: Layout) -> None:
        """Learn from the ``layout`` of a result which axes are heads: those that are merged in
        front of the values' width, while others stay outside."""
        for merged in layout:
            inside = [axis for axis in leaves(merged) if axis.size > 1]
            width = next((i for i, axis in enumerate(inside) if axis in self._width()), 0)
            self.merge_with_width(inside[:width], inside)

    def merge_with_width(self, axes: Sequence[Axis], inside: Sequence[Axis]) -> None:
        """Mark the last of ``axes`` that are batch or heads as heads."""
        shared = {*leaves(self.batch), *leaves(self.heads)}
        queries = leaves(self.queries)
        outside = {axis for axis in {*shared, *queries}.difference(inside) if axis.size > 1}
        if len(axes) > 1 and axes[-1] in queries and axes[-2] in shared:
            # Between a head and the width stands what would be a row: one of its query heads.
            if outside.intersection(queries):
                axes[-1].heads = True
            elif not axes[-1].heads and ROWS_OR_HEADS not in self.doubts:
                self.doubts.append(ROWS_OR_HEADS)
        if not outside:
            return  # all axes are merged, so nothing distinguishes the heads
        for axis in reversed([axis for axis in axes if axis not in queries or not axis.heads]):
            if axis not in shared:
                break
            axis.heads = True

    def _width(self) -> list[Axis]:
        return leaves(self.value_width)


@dataclass
class History:
    """What happened to the scores between the product and the softmax."""

    factor: float = 1.0
    factors: list[Snapshot] = field(default_factory=list)
    addends: list[tuple[Snapshot, float]] = field(default_factory=list)
    masks: list[tuple[Snapshot, bool]] = field(default_factory=list)
    """Bool tensors, with the value that means "may attend"."""
    causal: bool = False
    """PyTorch's ``is_causal``, aligned at the top left."""
    pattern: Pattern | None = None
    through: list[str] = field(default_factory=list)
    """Functions applied to the scores that are neither scale, bias nor mask (tanh, clamp, …)."""
    sinks: int = 0
    """Columns beside the keys that shared the softmax."""
    over_queries: bool = False
    """Whether the softmax ran over the queries, which compete for each key (slot attention)."""

    def copy(self) -> "History":
        return History(
            self.factor,
            [*self.factors],
            [*self.addends],
            [*self.masks],
            self.causal,
            self.pattern,
            [*self.through],
            self.sinks,
            self.over_queries,
        )

    def times(self, factor: float) -> None:
        self.factor *= factor
        self.addends = [(addend, by * factor) for addend, by in self.addends]

    def snapshots(self) -> list[Snapshot]:
        """All tensors that the scores were combined with."""
        return [*self.factors, *(a for a, _ in self.addends), *(m for m, _ in self.masks)]

    def kept(self, keep: Keep) -> "History":
        new = self.copy()
        new.factors = [factor.kept(keep) for factor in self.factors]
        new.addends = [(addend.kept(keep), by) for addend, by in self.addends]
        new.masks = [(mask.kept(keep), allowed) for mask, allowed in self.masks]
        return new
