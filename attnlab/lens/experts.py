"""Which expert computes which token, and which tokens find their expert full.

A router chooses k experts for each token. An expert has room for ``capacity`` tokens of a sequence:
first choices are placed before any second choice, each in the order of the sequence, and a choice
that finds its expert full is dropped. A `Routed` holds the choices of one layer; what follows from
them for any capacity is computed from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

NONE = -1


@dataclass(frozen=True)
class Routed:
    """The choices of one layer on one sequence of n tokens, among E experts.

    ``chosen``    (n, k) int64: the experts of each token, the first choice first; -1 for none
    ``gates``     (n, k): the factor of each choice
    ``router``    (n, E) the router's probabilities, or None; zeros at padding
    ``experts``   E
    ``capacity``  how many tokens an expert may compute; n where there is no limit
    ``title``     what the layer is called
    """

    chosen: Tensor
    gates: Tensor
    router: Tensor | None
    experts: int
    capacity: int
    title: str = ""

    def queue(self) -> list[tuple[int, int]]:
        """(token, choice) in the order in which choices are placed."""
        k = self.chosen.shape[1]
        places = [(i, c) for c in range(k) for i in range(len(self.chosen))]
        return [(i, c) for i, c in places if int(self.chosen[i, c]) != NONE]

    def places(self) -> Tensor:
        """(n, k) int64: how many choices of the same expert are placed before; -1 for no choice."""
        line = self.chosen.mT.flatten()
        wanted = F.one_hot(line + 1, self.experts + 1)
        before = (wanted.cumsum(0) - wanted).gather(1, (line + 1)[:, None])[:, 0]
        return before.masked_fill(line == NONE, NONE).view(self.chosen.mT.shape).mT

    def dropped(self, capacity: int | None = None) -> Tensor:
        """(n, k) bool: the choices that find their expert full."""
        return self.places() >= (self.capacity if capacity is None else capacity)

    def wanted(self) -> Tensor:
        """(E,) int64: how many choices fall on each expert, before any is dropped."""
        return torch.bincount(self.chosen.flatten() + 1, minlength=self.experts + 1)[1:]

    def shares(self) -> Tensor:
        """(E,) f_e: the share of the tokens whose first choice is the expert, before dropping."""
        first = self.chosen[:, 0]
        counts = torch.bincount(first + 1, minlength=self.experts + 1)[1:].double()
        return counts / counts.sum().clamp(min=1)

    def mean_router(self) -> Tensor | None:
        """(E,) P_e: the router's mean probability of each expert, over the real tokens."""
        if self.router is None:
            return None
        real = (self.router.sum(-1) > 0).sum().clamp(min=1)
        return self.router.double().sum(0) / real

    def balance(self) -> float | None:
        """E Σ f_e P_e: 1 where all experts are used alike, E where one has all tokens."""
        mean = self.mean_router()
        return None if mean is None else self.experts * float(self.shares() @ mean)


def first_dropped(places: Tensor, capacity: int) -> int | None:
    """The first token of the sequence that no expert computes though it chose one, else the first
    that loses a choice; None where nothing is dropped."""
    dropped = places >= capacity
    for lost in (dropped.any(1) & (dropped | (places < 0)).all(1), dropped.any(1)):
        if len(found := lost.nonzero()):
            return int(found[0])
    return None


def same_as(layers: Sequence[Routed], experts: Sequence[Tensor]) -> None:
    """A ValueError unless dropping by each layer's capacity leaves ``experts``, (n, k) each, as was
    recorded."""
    for layer, computed in zip(layers, experts, strict=True):
        expected = layer.chosen.masked_fill(layer.dropped(), NONE)
        if wrong := (expected != computed).any(1).sum().item():
            where = f" in {layer.title}" if layer.title else ""
            raise ValueError(
                f"`experts` differs at {wrong} tokens{where} from what a capacity of "
                f"{layer.capacity} leaves of `chosen`, when first choices are placed before second "
                "ones and in the order of the sequence; leave `experts` out, or give the capacity "
                "with which they were computed"
            )
