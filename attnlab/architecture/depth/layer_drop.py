r"""LayerDrop: in training whole layers are left out at random, so that any of them can go later.

In every pass of training each layer is skipped with probability p, drawn anew:

$$x_{l+1} = \begin{cases} x_l & \text{with probability } p \\
\mathrm{layer}_l(x_l) & \text{otherwise} \end{cases}$$

In evaluation all layers run and nothing is rescaled. (Stochastic depth, its relative, multiplies
each branch by 1 − p in evaluation.) With p = 0 it is ``plain``. A pass of training takes 1 − p of
the time in the mean, and keeps the insides of those layers that run.

A model that was trained so can be pruned without training again: ``every_other`` gives the layers
that stay where a share of them goes, all but each ⌊1 / share⌋-th. Of 12 layers with share = 1/2,
1, 3, 5, 7, 9 and 11 stay. ``kept`` runs these layers alone, counted from 1, in training too;
``attnlab.models.pruned.pruned`` makes of it a model that has no others.

``naive``  the loop over the layers that run.

Common mistakes: rescaling in evaluation; one draw for several passes; to forget that a layer that
was skipped has no gradient in this pass (its ``grad`` is None, which distributed training waits
for, unless told to find unused parameters).

Departures.
- a layer is one block of a decoder with its cross-attention too

Fan, Grave, Joulin. Reducing Transformer Depth on Demand with Structured Dropout. ICLR 2020,
arXiv:1909.11556, sections 3.2 and 3.3.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.core.branches import Layer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way
from attnlab.core.options import Size

# ---- forms


def naive(x: Tensor, layers: Sequence[Layer], running: Sequence[int] | None = None) -> Tensor:
    """The loop over the layers whose numbers, from 1, are in ``running``; over all by default."""
    for number, layer in enumerate(layers, 1):
        if running is None or number in running:
            x = layer(x)
    return x


FORMS = {"naive": naive}


def every_other(layers: int, share: float) -> tuple[int, ...]:
    """The numbers, from 1, of the layers that stay where ``share`` of them is pruned evenly: all
    but the multiples of ⌊1 / share⌋."""
    if not 0 < share <= 0.5:
        raise ValueError(
            "share should be above 0 and at most 1/2, since every second layer is the most that "
            f"this rule prunes, got {share}"
        )
    gap = math.floor(1 / share + 1e-9)
    kept = tuple(number for number in range(1, layers + 1) if number % gap)
    if len(kept) == layers:
        raise ValueError(f"{share} of {layers} layers is less than one layer; take a larger share")
    return kept


# ---- module


class LayerDrop(Way):
    """The loop, from which training leaves each layer out with probability p."""

    def __init__(self, layers: Size, p: float = 0.2, kept: Sequence[Size] | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p is the probability that a layer is skipped, 0 ≤ p < 1, got {p}")
        numbers = tuple(range(1, layers + 1))
        if kept is not None and (not kept or any(one not in numbers for one in kept)):
            raise ValueError(
                f"kept should name some of the {layers} layers, counted from 1, got {list(kept)}"
            )
        self.p = p
        self.kept = numbers if kept is None else tuple(sorted({*kept}))

    def forward(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        return naive(x, layers, self._drawn() if self.training else self.kept)

    def step(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """All layers that are kept: decoding drops none."""
        return naive(x, layers, self.kept)

    def _drawn(self) -> list[int]:
        skipped = torch.rand(len(self.kept)) < self.p
        return [one for one, skip in zip(self.kept, skipped.tolist(), strict=True) if not skip]


# ---- card

L, a, p = letters("L a p")

CARD = Card(
    __doc__,
    name="layer_drop",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=L * a, parameters=L * p, equals="the loop over the layers"),
    build=LayerDrop,
    aliases=("layerdrop",),
    demo="""
    >>> ran = []
    >>> layers = [lambda x, number=number: ran.append(number) or x for number in range(1, 9)]
    >>> way = attnlab.build("layer_drop", layers=8, p=0.5)
    >>> _ = way.eval()(torch.zeros(1, 5, 8), layers)
    >>> ran  # all of them, in evaluation
    [1, 2, 3, 4, 5, 6, 7, 8]
    >>> ran.clear()
    >>> _ = [way.train()(torch.zeros(1, 5, 8), layers) for _ in range(500)]
    >>> abs(len(ran) / 500 - 4) < 0.5  # half of them, in the mean
    True
    """,
)
