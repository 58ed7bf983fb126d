"""What the module of every depth page has: the way through the layers, and which of them share
their parameters.

A page gives its form as ``run``, and as ``read_on`` where decoding needs another one. The layers
are those of ``attnlab.core.branches.Layer``.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from attnlab.core.branches import Layer


def loop(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Each layer reads what the layer before has left."""
    for layer in layers:
        x = layer(x)
    return x


class Sets(NamedTuple):
    """Which set of parameters each layer uses: layers with equal numbers share one.

    ``attention`` numbers those of self-attention and cross-attention, ``feed`` those of the
    feed-forward layers. The join of a sublayer belongs to its set.
    """

    attention: tuple[int, ...]
    feed: tuple[int, ...]


class Way(nn.Module):
    """The way through the layers of a stack, by default the loop over layers that share nothing."""

    reads_branches: ClassVar[bool] = False
    """Whether it adds the branches of the layers itself, so that joins must have ``branch``."""

    takes_norm: ClassVar[bool] = False
    """Whether it applies the last norm of the stack itself, which it is given as ``norm``."""

    run: Callable[[Tensor, Sequence[Layer]], Tensor] = staticmethod(loop)
    read_on: Callable[[Tensor, Sequence[Layer]], Tensor] = staticmethod(loop)

    def forward(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        return self.run(x, layers)

    def step(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """The way of layers that carry a state on, as in decoding."""
        return self.read_on(x, layers)

    def sets(self, layers: int) -> Sets:
        """The set of each of the layers of a stack."""
        return Sets(tuple(range(layers)), tuple(range(layers)))
