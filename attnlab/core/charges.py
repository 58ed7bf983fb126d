"""What a layer adds to the loss: the balance of experts, the price of another step.

A layer calls ``charge("balance", weight * value)`` in its forward pass while it trains. Only inside
``with charged() as charges:`` is the value kept, in ``charges``; ``attnlab.train.fit`` adds their
sum to the mean loss of each batch. A layer that runs again during the backward pass charges nothing
then, so what it added counts once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor


class Charges:
    """What was charged, in order: ``items`` are names and values, each value a scalar."""

    def __init__(self) -> None:
        self.items: list[tuple[str, Tensor]] = []

    def total(self) -> Tensor | None:
        """The sum of all values; None if nothing was charged."""
        values = [value for _, value in self.items]
        return sum(values[1:], values[0]) if values else None


_open: ContextVar[Charges | None] = ContextVar("attnlab_charges", default=None)


def charge(name: str, value: Tensor) -> None:
    """Add ``value``, a scalar, to the loss of the pass that is under way, if somebody collects.

    Raises ValueError where no gradient would reach the layer, as within a reversible depth.
    """
    if (charges := _open.get()) is None:
        return
    if value.shape:
        raise ValueError(f"a charge should be a scalar, got {name} of shape {tuple(value.shape)}")
    if not torch.is_grad_enabled():
        raise ValueError(
            f"the charge {name!r} has no gradient here: the layers run without one and again "
            "during the backward pass; take another depth, such as depth='plain'"
        )
    charges.items.append((name, value))


@contextmanager
def charged() -> Iterator[Charges]:
    """Collect what the layers charge inside the block; an inner block keeps its own."""
    charges = Charges()
    token = _open.set(charges)
    try:
        yield charges
    finally:
        _open.reset(token)
