"""What a tensor can be in the computation of attention: scores, weights, a mixture of values …"""

from dataclasses import dataclass
from typing import Any

from attnlab.lens.axes import Axis, Layout, leaves, size
from attnlab.lens.record import Attention
from attnlab.lens.snapshots import History, Keep, Roles, Snapshot

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclass
class Product:
    """Two operands and their summed axes."""

    left: Snapshot
    right: Snapshot
    out: Layout
    summed: tuple[Axis, ...]

    def shared(self) -> list[Axis]:
        """The axes that both operands have beside the summed ones: batch and heads."""
        found = leaves(axis for axes in self.out for axis in axes)
        return [axis for axis in found if self.left.has([axis]) and self.right.has([axis])]


@dataclass
class Widened:
    """A dimension of keys that was concatenated with columns of something else."""

    axis: Axis
    keys: tuple[Axis, ...]
    start: int

    @property
    def beside(self) -> int:
        return self.axis.size - size(self.keys)


@dataclass
class Scores:
    """A product, or something made of it by scaling, adding and masking."""

    product: Product
    layout: Layout
    history: History
    widened: Widened | None = None


@dataclass
class Weights:
    """A softmax over scores, or something made of it. ``used`` is what the model mixes with, except
    that dropout has not been applied."""

    roles: Roles
    queries: Snapshot
    keys: Snapshot
    layout: Layout
    used: Snapshot
    history: History
    dropout: float = 0.0
    mixed: bool = False
    logarithm: bool = False
    """Whether these are the logarithms of weights."""
    widened: Widened | None = None


@dataclass
class Mixed:
    """The result of mixing values; its later views may show which of its axes are heads."""

    layout: Layout
    roles: Roles


@dataclass
class Part:
    """One of the equal parts that a result of mixing was split into along ``outer``."""

    layout: Layout
    roles: Roles
    outer: tuple[Axis, ...]
    index: int
    count: int


@dataclass
class Scaled:
    """A tensor times a number, for example queries that were scaled before the product."""

    base: Snapshot
    factor: float
    result: Snapshot


@dataclass
class Packed:
    """A view that put ``count`` heads below one another in its rows, perhaps queries that share a
    key head: (…, h, n, d) as (…, h / count, count · n, d)."""

    count: int


@dataclass
class Elementwise:
    """Two tensors that were broadcast and multiplied; a sum makes a product of them."""

    left: Snapshot
    right: Snapshot
    layout: Layout
    history: History
    weights: Weights | None = None
    """The one that is attention weights, and whether it is the left one."""
    leads: bool = False


@dataclass
class Found:
    """Everything that is known about one attention call."""

    form: str
    roles: Roles
    queries: Snapshot
    keys: Snapshot
    values: Snapshot
    history: History
    weights: Snapshot | None = None
    dropout: float = 0.0
    log_sum_exp: Snapshot | None = None
    missing: str | None = None
    doubt: str | None = None
    choice: dict[str, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(size, self.roles.groups()))

    def record(self, name: str, keep: Keep) -> Attention:
        def kept(snapshot: Snapshot | None) -> Snapshot | None:
            return None if snapshot is None else snapshot.kept(keep)

        return Attention(
            name,
            self.form,
            self.roles,
            self.queries.kept(keep),
            self.keys.kept(keep),
            self.values.kept(keep),
            self.history.kept(keep),
            weights=kept(self.weights),
            dropout=self.dropout,
            log_sum_exp=kept(self.log_sum_exp),
            missing=self.missing,
            doubt=self.doubt,
            choice=self.choice,
        )
