"""What a join and a depth see of a layer: a stream, and sublayers that read it and add to it.

What several joins do to the matrices of a sublayer stands here too.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.norms import Normed
from attnlab.core.options import check_value

Sublayer: TypeAlias = Callable[[Tensor], Tensor]
"""Attention or a feed-forward layer with all its other inputs given: (b, n, dim) → (b, n, dim)."""

Side: TypeAlias = Literal["alone", "encoder", "decoder"]
"""Which stack of a model a join belongs to: the only one, or one of an encoder-decoder."""


class Branch(NamedTuple):
    """What one sublayer adds to the stream, and the parameters that this depends on."""

    run: Sublayer
    parameters: tuple[nn.Parameter, ...]


class Layer(Protocol):
    """A layer with all its other inputs given. A depth calls it, or adds its branches itself.

    ``padding`` is True at real tokens, (b, n), or None where all are real. ``start`` is the
    position of the first token, not 0 in decoding; one for each sequence where they differ.
    """

    padding: Tensor | None
    start: int | Tensor

    def __call__(self, x: Tensor) -> Tensor: ...

    @property
    def branches(self) -> Sequence[Branch]: ...


def used(branches: Sequence[Branch]) -> dict[int, nn.Parameter]:
    """Each parameter that takes a gradient, once, by its id: branches may share one."""
    return {id(p): p for part in branches for p in part.parameters if p.requires_grad}


def last_matrices(sublayer: nn.Module) -> Iterator[Tensor]:
    """The matrices whose products a sublayer adds to the stream: the output projection of
    attention, and ``contract`` of a feed-forward layer, of each within it, or of each expert."""
    for part in sublayer.modules():
        if isinstance(part, Heads):
            yield part.output.weight
        elif isinstance(contract := getattr(part, "contract", None), nn.Module):
            last: Any = contract
            yield last.weight


def passing_matrices(sublayer: nn.Module) -> Iterator[Tensor]:
    """The matrices on the way of what a sublayer adds to the stream: the value and the output
    projection of attention, and ``opens``, ``expand`` and ``contract`` of a feed-forward layer.
    Those that only choose, queries, keys and routers, are not."""
    for part in sublayer.modules():
        if isinstance(part, Heads):
            yield part.value.weight
            yield part.output.weight
        elif isinstance(getattr(part, "contract", None), nn.Module):
            found: Any = (getattr(part, name, None) for name in ("opens", "expand", "contract"))
            yield from (matrix.weight for matrix in found if matrix is not None)


def norm_last_matrices(sublayer: nn.Module, norm: Callable[[int], nn.Module]) -> None:
    """Put a norm in front of the last matrix of a sublayer, unless it has one already.

    ``norm`` makes it, of a width. A ValueError for a sublayer without such a matrix.
    """
    places = [(part, _last_matrix_of(part)) for part in sublayer.modules()]
    found = [(part, name) for part, name in places if name]
    if not found:
        raise ValueError(
            f"{type(sublayer).__name__} has no output matrix in front of which a norm could "
            "stand; take a join that needs none, such as join='pre_norm'"
        )
    for part, name in found:
        linear: Any = getattr(part, name)
        if not isinstance(linear, Normed):
            like = {"device": linear.weight.device, "dtype": linear.weight.dtype}
            setattr(part, name, Normed(norm(linear.in_features).to(**like), linear))


def _last_matrix_of(part: nn.Module) -> str:
    """The name of the matrix whose product this part of a sublayer gives; "" if it has none."""
    name = "output" if isinstance(part, Heads) else "contract"
    return name if isinstance(getattr(part, name, None), nn.Linear | Normed) else ""


def layers_of_stack(join: str, layers: int | None) -> int:
    """``layers``; a TypeError if it was not given to a join that depends on it."""
    if layers is None:
        raise TypeError(f"{join} needs layers, the number of layers of the stack it stands in")
    return layers


def check_side(side: Side, others: int | None) -> None:
    """A ValueError for a side that there is not, or for the layers of another stack beside none."""
    check_value("side", side, Side)
    if side == "alone" and others is not None:
        raise ValueError(
            f"others are the layers of the other stack, and side='alone' has none; leave "
            f"others={others} out"
        )


def shrink(sublayer: nn.Module, branches: int) -> None:
    """Divide the sublayer's last matrix by √branches, as GPT-2 does (Radford et al., 2019).

    The stream is a sum of that many branches; this keeps its initial variance the same for any
    depth.
    """
    for matrix in last_matrices(sublayer):
        matrix.data.div_(math.sqrt(branches))


class Shrinking(nn.Module):
    """A join whose sublayers begin the smaller, the more there are, if ``shrink`` is True."""

    shrink: bool

    def initialise(self, sublayer: nn.Module, branches: int) -> None:
        """With ``shrink``, divide the sublayer's last matrix by √branches."""
        if self.shrink:
            shrink(sublayer, branches)
