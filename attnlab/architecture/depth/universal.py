r"""Universal Transformer: one block, applied again and again, refines all tokens step by step.

Every step has the same parameters. Before each, every token $i$ is told its position and the step:

$$x^{t} = \mathrm{block}(x^{t-1} + P^t),\qquad P^t_i = p_i + p_t,\qquad t = 1, \dots, T$$

with the sinusoids $p$ of positions and of steps. T is the number of ``layers``. Without $P^t$ it
is ``shared``, which knows neither. Time and what is kept for the backward pass are those of T
layers.

**When to stop** (``act=True``, adaptive computation time). A unit reads the token before each step
and gives a probability of halting, $h^t_i = \sigma(w \cdot (x^{t-1}_i + P^t_i) + b)$. The token
halts at the first step N at which the sum of its probabilities exceeds $1 - \epsilon$. What is left
of 1 at that step is its remainder, $R = 1 - \sum_{t<N} h^t$, and its result is the mean of its
states under the weights $h^1, \dots, h^{N-1}, R$:

$$y_i = \sum_{t<N} h^t_i\, x^t_i + R_i\, x^N_i$$

Each step has a price: $\tau\,(N + R)$, in the mean over the real tokens, is charged to the loss
(``ponder`` is τ). N has no gradient, R has one. Padding takes no step and costs nothing. All steps
end when every token has halted; until then a token that has halted still moves on for those that
read it, though its result stays. At the last step T the remainder is all that is left.

``listing=True`` computes the result as the listing of the paper's appendix prints it: each step
moves the result towards the new state, $y \leftarrow w\,x^t + (1 - w)\,y$ from y = 0, and a token
that never halts has no remainder. Those weights do not sum to 1: states of early steps count less.

``naive``  the loop, with the signal of position and step.

Common mistakes: an embedding that is told the positions too (``positions="none"`` leaves that to
the page); a loss without the price, with which tokens never stop early; to expect less time from
halting, where a batch takes as many steps as its slowest token.

Departures.
- the block is that of the model, with its join and feed-forward layer. The paper has a layer norm
  after each sum
- the signal is added to tokens that are not multiplied by √dim first

Dehghani, Gouws, Vinyals, Uszkoreit, Kaiser. Universal Transformers. ICLR 2019, arXiv:1807.03819,
sections 2.1, 2.2 and the appendix. Graves, Adaptive Computation Time for Recurrent Neural Networks,
2016, arXiv:1603.08983, equations 5 to 14: the halting.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab.core.branches import Layer
from attnlab.core.card import Card, letters
from attnlab.core.charges import charge
from attnlab.core.claims import Depth
from attnlab.core.depth import Sets, Way
from attnlab.core.options import Size
from attnlab.core.positions import positions_of, sinusoids
from attnlab.core.precision import call_upcast, no_autocast, upcast
from attnlab.core.probe import note

# ---- forms


def naive(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """The loop, with the signal of position and step."""
    told = signal(x, layers)
    for step, layer in enumerate(layers):
        x = note("states", layer(x + told[step]))
    return x


FORMS = {"naive": naive}


def signal(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """p_i + p_t of each step, position and, where sequences differ, sequence: (T, …, n, dim)."""
    if not layers:
        raise ValueError("a Universal Transformer takes at least one step, got no layers")
    (_, n, dim), first = x.shape, layers[0]
    places = positions_of(n, x.device, padding=first.padding, start=first.start)
    steps = sinusoids(torch.arange(1, len(layers) + 1, device=x.device), dim)
    found = sinusoids(places, dim)
    return (steps.view(-1, *(1,) * (found.ndim - 1), dim) + found).to(x.dtype)


# ---- halting


class Halted(NamedTuple):
    """The results (b, n, dim), and of each token the step at which it halted and its remainder."""

    results: Tensor
    steps: Tensor
    remainders: Tensor


def until_halted(
    x: Tensor, layers: Sequence[Layer], probability: Callable[[Tensor], Tensor], *,
    epsilon: float = 0.01, listing: bool = False, to_the_end: bool = False,
) -> Halted:  # fmt: skip
    """The loop in which each token halts; ``to_the_end`` takes all steps even where all have."""
    told, results = signal(x, layers), torch.zeros_like(x)
    real = layers[0].padding
    running = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
    total = remainders = upcast(torch.zeros_like(x[..., 0]))
    steps = torch.zeros_like(running, dtype=torch.int64)
    for step, layer in enumerate(layers):
        if not (to_the_end or x.is_meta or running.any()):
            break
        x = x + told[step]
        h, left = probability(x), 1 - total
        last = step == len(layers) - 1 and not listing
        halts = running & ((total + h > 1 - epsilon) | last)
        remainders = torch.where(halts, left, remainders)
        weight = torch.where(halts, left, h).masked_fill(~running, 0)
        total, steps, running = total + weight, steps + running, running & ~halts
        x = note("states", layer(x))
        results = results + weight.to(x.dtype)[..., None] * (x - results if listing else x)
    return Halted(results, note("halted", steps), remainders)


# ---- module


class Universal(Way):
    """One block applied ``layers`` times, or until each token halts."""

    def __init__(
        self, dim: Size, layers: Size, *,
        act: bool = False, epsilon: float = 0.01, ponder: float = 0.01, listing: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon should lie between 0 and 1, got {epsilon}")
        if ponder < 0:
            raise ValueError(f"ponder is the price of a step and should not be negative: {ponder}")
        if listing and not act:
            raise ValueError("listing chooses how tokens halt; give act=True too, or leave it out")
        self.epsilon, self.ponder, self.listing = epsilon, ponder, listing
        self.unit = nn.Linear(dim, 1) if act else None
        if self.unit is not None:
            nn.init.ones_(self.unit.bias)

    def forward(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        if self.unit is None:
            return naive(x, layers)
        found = self._until_halted(x, layers, to_the_end=False)
        if self.training:
            charge("ponder", self.ponder * self._price(found, layers[0].padding))
        return found.results

    def step(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """The form for decoding; tokens yet to come read every step, so each takes them all."""
        if self.unit is None:
            return naive(x, layers)
        return self._until_halted(x, layers, to_the_end=True).results

    def _until_halted(self, x: Tensor, layers: Sequence[Layer], *, to_the_end: bool) -> Halted:
        return until_halted(
            x, layers, self._probability,
            epsilon=self.epsilon, listing=self.listing, to_the_end=to_the_end,
        )  # fmt: skip

    def _probability(self, x: Tensor) -> Tensor:
        assert self.unit is not None
        with no_autocast(x.device):  # whether a token halts is a choice
            out: Tensor = call_upcast(self.unit, upcast(x)).sigmoid().squeeze(-1)
        return out

    @staticmethod
    def _price(found: Halted, padding: Tensor | None) -> Tensor:
        """N + R in the mean over the real tokens."""
        real = torch.ones_like(found.steps, dtype=torch.bool) if padding is None else padding
        spent = (found.steps + found.remainders).masked_fill(~real, 0)
        return spent.sum() / real.sum().clamp(min=1)

    def sets(self, layers: int) -> Sets:
        return Sets((0,) * layers, (0,) * layers)


# ---- card

L, a, p = letters("L a p")

CARD = Card(
    __doc__,
    name="universal",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=L * a, parameters=p, equals="a block that is told position and step"),
    build=Universal,
    notes={"naive": ("states",)},
    variants=({"act": True},),
    aliases=("universal_transformer",),
    demo="""
    >>> options = {"act": True, "epsilon": 0.2}
    >>> steps = {}
    >>> for bias in (-3.0, 0.0, 3.0):  # of the unit that says when a token halts
    ...     model = attnlab.TinyTransformer(
    ...         50, dim=32, layers=6, positions="none", depth="universal", depth_options=options
    ...     )
    ...     _ = model.decoder.depth.unit.weight.data.zero_()
    ...     _ = model.decoder.depth.unit.bias.data.fill_(bias)
    ...     with attnlab.core.probe.record() as notes:
    ...         _ = model(torch.arange(5)[None])
    ...     steps[bias] = notes.last("halted").tolist()[0]
    >>> steps
    {-3.0: [6, 6, 6, 6, 6], 0.0: [2, 2, 2, 2, 2], 3.0: [1, 1, 1, 1, 1]}
    """,
)
