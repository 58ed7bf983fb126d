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

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.objectives.batches import (
    UNSCORED,
    Batch,
    CrossEntropy,
    logits_of,
    one_by_one,
    summed_loss,
)

# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Minus the logarithm of the probability of each scored target, and how many there are."""
    return one_by_one(logits_of(model, batch), batch.targets)


def fused(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Computes the loss by one call for all positions."""
    scored = int((batch.targets != UNSCORED).sum())
    return summed_loss(logits_of(model, batch), batch.targets), scored


FORMS = {"naive": naive, "fused": fused}

# ---- module


class NextToken(CrossEntropy):
    """The targets of the task as they are: nothing is hidden but the future, which a causal model
    cannot see."""

    models = ("language_model", "encoder_decoder", "classifier", "token_classifier")


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="next_token",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=s,
        hidden="what comes after a token",
        models=NextToken.models,
    ),
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
