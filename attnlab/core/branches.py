"""What a join and a depth see of a layer: a stream, and sublayers that read it and add to it."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from torch import Tensor, nn

from attnlab.core.heads import Heads

Sublayer: TypeAlias = Callable[[Tensor], Tensor]
"""Attention or a feed-forward layer with all its other inputs given: (b, n, dim) → (b, n, dim)."""


class Branch(NamedTuple):
    """What one sublayer adds to the stream, and the parameters that this depends on."""

    run: Sublayer
    parameters: tuple[nn.Parameter, ...]


class Layer(Protocol):
    """A layer with all its other inputs given. A depth calls it, or adds its branches itself.

    ``padding`` is True at real tokens, (b, n), or None where all are real.
    """

    padding: Tensor | None

    def __call__(self, x: Tensor) -> Tensor: ...

    @property
    def branches(self) -> Sequence[Branch]: ...


def used(branches: Sequence[Branch]) -> dict[int, nn.Parameter]:
    """Each parameter that takes a gradient, once, by its id: branches may share one."""
    return {id(p): p for part in branches for p in part.parameters if p.requires_grad}


def last_matrices(sublayer: nn.Module) -> Iterator[Tensor]:
    """The matrices whose products a sublayer adds to the stream: the output projection of
    attention, and ``contract`` of a feed-forward layer."""
    for part in sublayer.modules():
        if isinstance(part, Heads):
            yield part.output.weight
        elif isinstance(contract := getattr(part, "contract", None), nn.Linear):
            yield contract.weight
