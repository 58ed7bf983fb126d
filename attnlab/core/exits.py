"""Every exit of a depth: what an objective needs that trains a model to answer after each layer.

Inside ``with every_exit() as exits:`` a depth with exits runs all tokens through all layers and
adds an ``Exits`` to the list. Elsewhere it does what it was trained for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor


class Exits(NamedTuple):
    """What one pass through the layers of a stack shows.

    states: the normalised stream after each of the N layers, (N, b, n, dim).
    leaving: log-probabilities that a token leaves after each of them, (b, n, N); None where
        nobody learns to leave.
    """

    states: Tensor
    leaving: Tensor | None = None


_asked: ContextVar[list[Exits] | None] = ContextVar("attnlab_exits", default=None)


def asked() -> list[Exits] | None:
    """Where a depth should add its exits, if somebody asks for them."""
    return _asked.get()


@contextmanager
def every_exit() -> Iterator[list[Exits]]:
    """Collect the exits of each stack that runs inside the block."""
    exits: list[Exits] = []
    token = _asked.set(exits)
    try:
        yield exits
    finally:
        _asked.reset(token)
