"""What a join and a depth see of a layer: a stream, and sublayers that read it and add to it."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.norms import Normed

Sublayer: TypeAlias = Callable[[Tensor], Tensor]
"""Attention or a feed-forward layer with all its other inputs given: (b, n, dim) → (b, n, dim)."""


class Branch(NamedTuple):
    """What one sublayer adds to the stream, and the parameters that this depends on."""

    run: Sublayer
    parameters: tuple[nn.Parameter, ...]


class Layer(Protocol):
    """A layer with all its other inputs given. A depth calls it, or adds its branches itself."""

    def __call__(self, x: Tensor) -> Tensor: ...

    @property
    def branches(self) -> Sequence[Branch]: ...


def last_matrices(sublayer: nn.Module) -> Iterator[Tensor]:
    """The matrices whose products a sublayer adds to the stream: the output projection of
    attention, and ``contract`` of a feed-forward layer."""
    for part in sublayer.modules():
        if isinstance(part, Heads):
            yield part.output.weight
        elif isinstance(contract := getattr(part, "contract", None), nn.Linear | Normed):
            yield contract.weight


def passing_matrices(sublayer: nn.Module) -> Iterator[Tensor]:
    """The matrices on the way of what a sublayer adds to the stream: the value and the output
    projection of attention (queries and keys only choose), and all of a feed-forward layer."""
    for part in sublayer.modules():
        if isinstance(part, Heads):
            yield part.value.weight
            yield part.output.weight
        elif isinstance(getattr(part, "contract", None), nn.Linear | Normed):
            yield from (m.weight for m in part.children() if isinstance(m, nn.Linear | Normed))


def shrink(sublayer: nn.Module, branches: int) -> None:
    """Divide the sublayer's last matrix by √branches, as GPT-2 does (Radford et al., 2019).

    The stream is a sum of that many branches; this keeps its initial variance the same for any
    depth.
    """
    for matrix in last_matrices(sublayer):
        matrix.data.div_(math.sqrt(branches))
