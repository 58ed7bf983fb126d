r"""Conditional masked language model: some words of a target are shown, the others are asked.

The decoder reads the target with K of its N words masked, K drawn anew for each target from 1 to N.
It sees all of it and the source, and answers at the masks, each alone:

$$\ell = -\sum_{i \in M} \log p(y_i \mid X, Y_{\text{shown}}),\qquad |M| = K \sim U\{1, \dots, N\}$$

With K = N this is ``nat``. A word that is shown may say which of several translations is meant: of
two dialects one word tells all, and the conditional total correlation of the others is 0. So what
is lost is lost in the first words. All words that are asked are masks; BERT keeps and replaces
some of them.

*Mask-predict* writes with such a model in T passes. All words are masked at first and filled in;
then the $\lfloor N (T - t) / T \rfloor$ words of which the model was least sure are masked again in
pass t = 1 … T − 1, and filled in with the others in view. A word that stays keeps the probability
with which it was written (``attnlab.models.parallel_decoding.mask_predict``).

``naive``       target by target, mask by mask.
``vectorised``  all targets at once.

Common mistakes: a loss at words that are shown; a share of words as in a masked language model, so
that the model never sees masks alone; a causal mask in the decoder; probabilities of kept words
that are computed again, with those words in view.

Departures.
- the length is that of the target, or with ``length=0.1`` it is read from the mean over the
  encoder's vectors; the paper's encoder reads a token LENGTH for it

Ghazvininejad, Levy, Liu, Zettlemoyer. Mask-Predict: Parallel Decoding of Conditional Masked
Language Models. EMNLP 2019, arXiv:1904.09324, sections 2 and 3.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch
from attnlab.objectives.hiding import lowest, uniform
from attnlab.objectives.parallel import (
    Parallel,
    ParallelOptions,
    check_pairs,
    decoder_padding,
    open_to_all,
    places,
    tokens_of,
)

# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "CMLM",
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(y_i | X, the shown words) over the masked words, and their number."""
    asked = objective.prepare(batch, generator)
    answers = objective.answers(model, asked)
    logits = upcast(tokens_of(answers))
    losses = [logits.new_zeros(())]
    for row, inputs in enumerate(asked.inputs.tolist()):
        for i, token in enumerate(inputs):
            if token == objective.vocab and asked.targets[row, i] != UNSCORED:
                losses.append(-logits[row, i].log_softmax(-1)[asked.targets[row, i]])
    loss = torch.stack(losses).sum() + objective.length_one_by_one(answers, asked)
    return loss, len(losses) - 1


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "CMLM",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class CMLM(Parallel):
    """Masks a number of words of each target, from one to all of them.

    vocab: how many tokens the task has. The mask is the token after them, so the model needs one
        more.
    """

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with masks in the target; notes ``hidden`` and ``scored``, which are the same
        places, both (b, n)."""
        check_pairs("cmlm", batch, self.vocab)
        real = places("cmlm", batch)
        n = real.sum(-1)
        scores = uniform(real.shape, generator)
        count = 1 + torch.randint(2**40, n.shape, generator=generator) % n.clamp(min=1)
        hidden = note("hidden", lowest(scores, real, count.minimum(n)))
        note("scored", hidden)
        return replace(
            batch,  # type: ignore[type-var]
            inputs=batch.targets.masked_fill(hidden | ~real, self.vocab),
            targets=batch.targets.masked_fill(~hidden, UNSCORED),
            padding=decoder_padding(real),
            structure=open_to_all(batch.targets),
        )


# ---- card

s, b = letters("s b")

CARD = Card(
    __doc__,
    name="cmlm",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=s / 2 + b / 2, hidden="1 to all words of the target", models=CMLM.models, source=True
    ),
    options=ParallelOptions,
    build=CMLM,
    variants=({"length": 0.1},),
    aliases=("conditional_masked_lm",),
    demo="""
    >>> task = attnlab.tasks.task("two_dialects", words=8)
    >>> asked = attnlab.build("cmlm", vocab=task.vocab).prepare(task.batch("train", 4, seed=0))
    >>> masks, questions = asked.inputs == task.vocab, asked.targets >= 0
    >>> bool((masks == questions).all()), masks.sum(1).tolist()  # K is drawn for each target
    (True, [5, 1, 5, 6])
    """,
)
