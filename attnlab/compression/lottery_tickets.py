r"""Lottery tickets: the mask that training finds, on the values that it began with.

A pruned network that is trained again from new random values mostly ends worse than before. Frankle
and Carbin found that it does not, for many masks, if it begins again with its own first values:

$$\theta = \mathrm{train}(\theta_0),\qquad M = \text{mask of the largest } |\theta|,\qquad
  \text{ticket} = M \odot \theta_0$$

The ticket is trained in turn, a share p of what is left is cut, and so on: after R rounds a share
$r = (1 - p)^R$ is left. Larger networks need values of a later step k in the place of $\theta_0$
(rewinding, ``start``); for BERT they are the pretrained ones, and each round cuts a share p of the
original weights, which is $1/(10 - k)$ of what is left in round k = 0, 1, … for p = 0.1.

The control is the same mask with new values (``under_masks_of``). If it does as well, the first
values do not matter. Whether the places of the mask do, a second control asks, with as many weights
of each matrix at random places.

``naive``  one weight after the other, round after round.
``ranked`` one threshold for all rounds.

Both cut a matrix R times without training in between.

Common mistakes: what remains set back to other random values, which is the control; the state of
the optimizer or of the schedule kept, where training begins anew; masks that are found without the
earlier ones, so that cut weights come back.

Departures.
- a round leaves a share of all weights together, as the first paper does for its deep networks; it
  cuts the small ones layer by layer, and their output layer at half of the rate
- training is a function that the caller gives

Frankle, Carbin. The Lottery Ticket Hypothesis: Finding Sparse, Trainable Neural Networks. ICLR
2019, arXiv:1803.03635. Frankle, Dziugaite, Roy, Carbin. Stabilizing the Lottery Ticket Hypothesis.
arXiv 2019, arXiv:1903.01611. Chen, Frankle, Chang, Liu, Zhang, Wang, Carbin. The Lottery Ticket
Hypothesis for Pre-trained BERT Networks. NeurIPS 2020, arXiv:2007.12223.
"""

import copy
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.compression.matrices import (
    count,
    largest,
    linear_layers,
    mask_on,
    put_mask,
    refuse_meta,
    stored_bytes,
)
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.core.options import Count, check_share, check_value
from attnlab.core.shapes import checked

# ---- forms

Of = Literal["left", "original"]
Train = Callable[[nn.Module], object]


@checked
def naive(
    W: Float[Tensor, "f dim"], *, rate: float = 0.2, rounds: Count = 1, of: Of = "left"
) -> Float[Tensor, "f dim"]:
    """The largest weights after so many rounds, one after the other."""
    refuse_meta(W)
    mask = torch.ones(W.numel(), dtype=torch.bool)
    for done in range(1, rounds + 1):
        left = [i for i in range(W.numel()) if mask[i]]
        if not left or rate == 0:
            break
        left.sort(key=lambda i: -abs(W.flatten()[i].item()))
        for i in left[count(W.numel(), share_left(rate, done, of)) :]:
            mask[i] = False
    return W * mask.view_as(W).to(W.device)


@checked
def ranked(
    W: Float[Tensor, "f dim"], *, rate: float = 0.2, rounds: Count = 1, of: Of = "left"
) -> Float[Tensor, "f dim"]:
    """Computes the last round alone: without training in between its mask lies in all others."""
    refuse_meta(W)
    left = count(W.numel(), share_left(rate, rounds, of))
    return W * largest(W.detach().abs().flatten(), left).view_as(W)


FORMS = {"naive": naive, "ranked": ranked}


def share_left(rate: float, rounds: int, of: Of = "left") -> float:
    """(1 - p)^R, or 1 - R p where each round cuts a share of the original weights."""
    check_share("rate", rate)
    return (1 - rate) ** rounds if of == "left" else max(0.0, 1 - rounds * rate)


# ---- module


class LotteryTickets(nn.Module):
    """Finds a mask in some rounds, and puts it on the values that training began with.

    rate: the share that a round cuts, of what is "left" or of the "original" weights (``of``).
    train: trains a module in place, such as ``lambda model: fit(model, task, 400)``; not given,
    the module is trained already, and all rounds are one cut. start: a module with the values of
    the ticket, of step 0 or of a later step; not given, those of the module.
    """

    def __init__(
        self, rate: float = 0.2, rounds: Count = 1, of: Of = "left",
        train: Train | None = None, start: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.rate = check_share("rate", rate)
        self.rounds = check_value("rounds", rounds, Count)
        self.of: Of = check_value("of", of, Of)
        self._train = check_value("train", train, Train | None)
        self._start = [check_value("start", start, nn.Module | None)]  # no part of this module
        self.kept = share_left(self.rate, self.rounds, self.of)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, rounds={self.rounds}, of={self.of!r}"

    def forward(self, module: nn.Module) -> nn.Module:
        """The ticket, untrained: a copy with the values of ``start`` under the last mask.

        Raises ValueError for a module without linear layers, for weights that are NaN, and where
        ``start`` is another kind of module.
        """
        if self._train is None and self.rounds:
            start = module if self._start[0] is None else self._start[0]
            return self._ticket(module, start, self.kept)
        return self.tickets(module)[-1]

    def tickets(self, module: nn.Module) -> list[nn.Module]:
        """The module, and the ticket of each round, untrained."""
        linear_layers(module)
        start = module if self._start[0] is None else self._start[0]
        found = [copy.deepcopy(module if not self.rounds else start)]
        trained = copy.deepcopy(module)
        for done in range(1, self.rounds + 1):
            if self._train is not None:
                self._train(trained)
            found.append(self._ticket(trained, start, share_left(self.rate, done, self.of)))
            if self._train is not None:
                trained = copy.deepcopy(found[-1])
        return found

    def _ticket(self, trained: nn.Module, start: nn.Module, kept: float) -> nn.Module:
        layers = linear_layers(trained)
        sizes = torch.cat([layer.weight.detach().abs().flatten() for layer in layers.values()])
        parts = largest(sizes, count(len(sizes), kept))
        masked = copy.deepcopy(trained)
        for (name, layer), part in zip(
            linear_layers(masked).items(),
            parts.split([layer.weight.numel() for layer in layers.values()]),
            strict=True,
        ):
            put_mask(layer, part.view_as(layers[name].weight))
        return under_masks_of(masked, start)

    def bytes(self, module: nn.Module) -> int:
        """What the matrices of a ticket take when they are stored: a bit for each weight, and the
        numbers that are left."""
        return stored_bytes(module)


def under_masks_of(ticket: nn.Module, other: nn.Module) -> nn.Module:
    """A copy of another module, with the masks of this one.

    With new random values it is the control of a ticket. Raises ValueError where the two have not
    the same linear layers.
    """
    made = copy.deepcopy(other)
    mine, theirs = linear_layers(ticket), linear_layers(made)
    if {n: x.weight.shape for n, x in mine.items()} != {
        n: x.weight.shape for n, x in theirs.items()
    }:
        raise ValueError(
            "a mask belongs to a module with the same linear layers, and those of "
            f"{type(ticket).__name__} and {type(other).__name__} differ in names or shapes"
        )
    for name, layer in mine.items():
        mask = mask_on(layer)
        if mask is not None:
            put_mask(theirs[name], mask.mask.clone().to(theirs[name].weight.device))
    return made


# ---- card

N, r = letters("N r")

CARD = Card(
    __doc__,
    name="lottery_tickets",
    family="compression",
    role="compress",
    forms=FORMS,
    claims=Compression(bytes=N / 8 + 4 * r * N, error=1 - r),
    letters={"r": "kept"},
    build=LotteryTickets,
    variants=(
        {"rate": 0.4, "rounds": 6},
        {"rate": 0.1, "rounds": 7, "of": "original"},
        {"rate": 1.0},
        {"rounds": 0},
    ),
    aliases=("lottery_ticket", "tickets"),
    demo="""
    >>> first = torch.nn.Linear(100, 100)
    >>> train = lambda layer: layer.weight.data.mul_(torch.rand_like(layer.weight))
    >>> ticket = attnlab.build("lottery_tickets", rate=0.5, rounds=3, train=train)(first)
    >>> left = ticket.weight != 0
    >>> left.sum().item(), torch.equal(ticket.weight[left], first.weight[left])
    (1250, True)
    """,
)
