r"""Next token: every position answers which token comes next.

A causal model reads a text $x_1 \dots x_n$ and gives at each position a distribution over the
vocabulary. The loss is the surprise at the token that comes next, the cross-entropy:

$$\ell = -\sum_{t} \log p(x_{t+1} \mid x_1, \dots, x_t)$$

Nothing is hidden but the future, so every position of every text is a question, and the answers of
all are computed at once. The same loss trains a classifier: its targets are the classes that the
task gives. A target of -100 is not scored.

A model that answers every token with the same probability loses $\log V$ at each of them, for a
vocabulary of V.

Sums, not means: a mean over a part of a batch weighs every part alike, however few of its targets
are scored. Sums over the parts add up to that of the whole batch, and one division by the number of
its scored targets gives its loss, whether it was accumulated or sharded.

``naive``  the equation, one position after the other.
``fused``  PyTorch's cross-entropy over all of them.

Common mistakes: targets that are not shifted, so the model copies; padding that is scored; a mean
of the means of parts.

Departures.
- classifiers use the same page, as the loss is the same

Bengio, Ducharme, Vincent, Jauvin. A Neural Probabilistic Language Model. JMLR 2003.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.objectives.batches import UNSCORED, Batch, logits_of

# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Minus the logarithm of the probability of each scored target, and how many there are."""
    probabilities = logits_of(model, batch).flatten(0, -2).softmax(-1)
    losses = [
        -p[target].log()
        for p, target in zip(probabilities, batch.targets.flatten().tolist(), strict=True)
        if target != UNSCORED
    ]
    return torch.stack([probabilities.new_zeros(()), *losses]).sum(), len(losses)


def fused(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """The same, by one call for all positions."""
    scored = int((batch.targets != UNSCORED).sum())
    return summed_loss(logits_of(model, batch), batch.targets), scored


FORMS = {"naive": naive, "fused": fused}


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy summed over the scored targets, in float32 or better."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(
        exact.flatten(0, -2), targets.flatten(), ignore_index=UNSCORED, reduction="sum"
    )


# ---- module


class NextToken(nn.Module):
    """The targets of the task as they are, by cross-entropy."""

    def forward(
        self, model: nn.Module, batch: Batch, generator: torch.Generator | None = None
    ) -> tuple[Tensor, int]:
        """The summed loss, and the number of scored targets."""
        return fused(model, self.prepare(batch, generator))

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch itself: nothing is hidden but the future, which a causal model cannot see."""
        return batch

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        return logits_of(model, batch)

    def loss(self, answers: Tensor, batch: Batch) -> Tensor:
        return summed_loss(answers, batch.targets)

    def right(self, answers: Tensor, batch: Batch) -> Tensor:
        return (answers.argmax(-1) == batch.targets).sum()  # an unscored target equals no answer


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="next_token",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(scored=s, hidden="what comes after a token", causal="always"),
    build=NextToken,
    aliases=("cross_entropy", "language_modeling"),
    demo="""
    >>> batch = attnlab.tasks.Batch(torch.tensor([[3, 1, 4]]), torch.tensor([[1, 4, 1]]))
    >>> uniform = lambda tokens, padding: torch.zeros(*tokens.shape, 50)
    >>> loss, count = attnlab.build("next_token")(uniform, batch)
    >>> count, round(loss.item() / count, 4)  # the logarithm of a vocabulary of 50
    (3, 3.912)
    """,
)
