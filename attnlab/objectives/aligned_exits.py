r"""Aligned exits: the model answers after each layer, and learns after which a token may leave.

A model with exits (``depth="depth_adaptive"``) gives N distributions at each position, one after
each of its N layers. The loss is the mean over the exits of that of ``next_token``:

$$\ell = -\frac{1}{N}\sum_{n=1}^{N} \sum_t \log p_n(x_{t+1} \mid x_1, \dots, x_t)$$

It is called aligned because every exit reads what the same layers left of all earlier tokens, as if
none had left before. Beside it, the probabilities q of leaving learn from an **oracle**, the exit
that would have been best, where a layer costs λ:

$$n^* = \arg\max_n \mathrm{LL}_n - \lambda n,\qquad
\text{a sequence:}\ \mathrm{LL}_n = \sum_t \log p_n(x_{t+1}),\qquad
\text{a token:}\ \mathrm{LL}_{n,t} = \sum_{t'} e^{-(t - t')^2 / \sigma} \log p_n(x_{t'+1})$$

With a large σ every token has the oracle of its sequence; with σ near 0 it sees itself alone. The
cross-entropy between the oracle and q is charged to the loss (``attnlab.core.charges``), as a mean
over the real tokens. The oracle of a position without a scored target is the last layer: others may
need what it becomes.

``naive``  the equation, one exit and one position after the other.
``fused``  PyTorch's cross-entropy over all of them.

Common mistakes: an oracle that passes a gradient on; the loss of the last exit alone, after which
the earlier ones answer at random.

Departures.
- the oracle of unscored positions, which the translation of the authors does not have

Elbayad, Gu, Grave, Auli. Depth-Adaptive Transformer. ICLR 2020, arXiv:1910.10073, sections 2 to 4.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.charges import charge
from attnlab.core.claims import Objective
from attnlab.core.exits import Exits, every_exit
from attnlab.core.options import Options
from attnlab.objectives.batches import (
    UNSCORED,
    Batch,
    CrossEntropy,
    check_logits,
    logits_of,
    one_by_one,
)


@dataclass(frozen=True, kw_only=True)
class AlignedExitsOptions(Options):
    """How a token learns when to leave.

    oracle: the best exit of each "token", or of the "sequence".
    cost: what a layer costs, λ, beside a log-likelihood in nats.
    smoothing: σ, how far the oracle of a token looks around it, in squared positions.
    weight: that of learning to leave, beside the loss of the answers.
    """

    oracle: Literal["token", "sequence"] = "token"
    cost: float = 0.1
    smoothing: float = 0.1
    weight: float = 1.0

    def check(self) -> None:
        if self.smoothing <= 0:
            raise ValueError(f"smoothing should be more than 0, got {self.smoothing}")
        if self.cost < 0 or self.weight < 0:
            raise ValueError(
                f"cost and weight should be 0 or more, got cost={self.cost}, weight={self.weight}"
            )


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Minus the mean log-probability over the exits, of each scored target, and how many."""
    every = exits_of(model, batch)[0]
    found = [one_by_one(logits, batch.targets) for logits in every]
    return torch.stack([total for total, _ in found]).mean(), found[0][1]


def fused(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Computes the loss by one call for all positions of all exits."""
    answers = exits_of(model, batch)[0]
    return aligned_loss(answers, batch.targets), int((batch.targets != UNSCORED).sum())


FORMS = {"naive": naive, "fused": fused}


def exits_of(model: nn.Module, batch: Batch) -> tuple[Tensor, Exits]:
    """The logits at every exit, (N, b, n, classes), and the exits they were computed from."""
    with every_exit() as found:
        logits_of(model, batch)
    if len(found) != 1:
        raise ValueError(
            "aligned_exits trains a model whose tokens can leave after each layer of one stack: "
            "build a language model or a token classifier with depth='depth_adaptive'"
        )
    bare: Any = getattr(model, "module", model)  # of what shares its gradients among processes
    logits: Tensor = bare.logits(found[0].states)
    check_logits(logits[-1], batch)
    return logits, found[0]


def aligned_loss(answers: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy summed over the scored targets, its mean over the exits."""
    losses = log_likelihoods(answers, targets)
    return -losses.sum() / losses.shape[-1]


def log_likelihoods(answers: Tensor, targets: Tensor) -> Float[Tensor, "b n N"]:
    """log p_n of each target, 0 where it is not scored, in float32 or better."""
    every = answers.reshape(-1, *targets.shape, answers.shape[-1])
    exact = every if every.dtype == torch.float64 else every.float()
    same = targets.expand(len(every), *targets.shape)
    found = F.cross_entropy(exact.movedim(-1, 1), same, ignore_index=UNSCORED, reduction="none")
    return -found.movedim(0, -1)


def sequence_oracle(likelihoods: Float[Tensor, "b n N"], cost: float) -> Int[Tensor, "b n"]:
    """The best exit of each sequence, at all of its tokens; 0 is the first."""
    whole = likelihoods.sum(1, keepdim=True).expand_as(likelihoods)
    return _best(whole, cost)


def token_oracle(
    likelihoods: Float[Tensor, "b n N"], cost: float, smoothing: float
) -> Int[Tensor, "b n"]:
    """The best exit of each token, its likelihoods smoothed along the sequence."""
    t = torch.arange(likelihoods.shape[1], device=likelihoods.device)
    near = torch.exp(-((t[:, None] - t) ** 2) / smoothing).to(likelihoods.dtype)
    return _best(near @ likelihoods, cost)


def _best(likelihoods: Tensor, cost: float) -> Tensor:
    layers = torch.arange(1, likelihoods.shape[-1] + 1, device=likelihoods.device)
    return (likelihoods - cost * layers).argmax(-1)


# ---- module


class AlignedExits(CrossEntropy):
    """The targets of the task at every exit, and an oracle for those who may leave."""

    models = ("language_model", "token_classifier")
    needs = MappingProxyType({"depth": "depth_adaptive"})

    def __init__(self, options: AlignedExitsOptions = AlignedExitsOptions()) -> None:
        super().__init__()
        self.options = options

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        """The logits at every exit, (N, b, n, classes)."""
        logits, exits = exits_of(model, batch)
        if exits.leaving is not None and model.training:
            charge("exits", self.options.weight * self._leaving(logits, exits.leaving, batch))
        return logits

    def loss(self, answers: Tensor, batch: Batch) -> Tensor:
        return aligned_loss(answers, batch.targets)

    def right(self, answers: Tensor, batch: Batch) -> Tensor:
        """How many targets the last exit answers rightly."""
        last = answers.reshape(-1, *batch.targets.shape, answers.shape[-1])[-1]
        return (last.argmax(-1) == batch.targets).sum()  # an unscored target equals no answer

    def _leaving(self, logits: Tensor, leaving: Tensor, batch: Batch) -> Tensor:
        """The mean cross-entropy between the oracle and the probabilities of leaving."""
        o, likelihoods = self.options, log_likelihoods(logits.detach(), batch.targets)
        if o.oracle == "sequence":
            best = sequence_oracle(likelihoods, o.cost)
        else:
            best = token_oracle(likelihoods, o.cost, o.smoothing)
        best = best.masked_fill(batch.targets == UNSCORED, leaving.shape[-1] - 1)
        losses = F.nll_loss(leaving.movedim(-1, 1), best, reduction="none")
        return losses.mean() if batch.padding is None else losses[batch.padding].mean()


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="aligned_exits",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(scored=s, hidden="what comes after a token", models=AlignedExits.models),
    options=AlignedExitsOptions,
    build=AlignedExits,
    demo="""
    >>> from attnlab.tasks import Batch
    >>> model = attnlab.TinyTransformer(50, layers=4, depth="depth_adaptive")
    >>> objective, tokens = attnlab.build("aligned_exits"), torch.arange(10)[None]
    >>> batch = Batch(tokens, tokens.roll(-1, 1))
    >>> objective.answers(model, batch).shape  # logits at each of four exits
    torch.Size([4, 1, 10, 50])
    >>> objective(model, batch)[1]  # targets are counted once
    10
    """,
)
