r"""Non-autoregressive transformer: all words of a target are written at once, none sees another.

A source $X$ is translated into $Y = y_1 \dots y_N$. A decoder that writes from left to right gives
$y_i$ the words before it. Here the decoder reads N masks, which see each other and the source, and
answers at all of them in one pass:

$$\ell = -\sum_{i=1}^{N} \log p(y_i \mid X)$$

One pass in the place of N is why it is wanted. The price is the product: whatever the words of Y
have to do with each other, given X, is lost. The best that such a model can reach are the marginals
of the data, and there it still differs from the data by the *conditional total correlation*, the
sum of the entropies of the words less the entropy of the sentence:

$$\min_\theta \mathrm{KL}(P_\text{data} \,\|\, P_\theta) = C(Y \mid X)
  = \sum_{i=1}^{N} H(y_i \mid X) - H(Y \mid X)$$

If each source has two equally good translations without a word in common, then C = (N − 1) ln 2:
the loss of each word ends at ln 2, and nearly every sentence mixes the two. What helps makes C
smaller: targets that a teacher wrote (``distilled``), words of the target that are shown
(``cmlm``). ``conditional_total_correlation`` computes it where all translations are known.

The length N must be known before. It is that of the target here; with ``length=0.1`` a head learns
it from the source, and this is the weight of its loss. ``attnlab.models.parallel_decoding`` writes.

``naive``       the equation, one word after the other.
``vectorised``  PyTorch's cross-entropy over all of them.

Common mistakes: a decoder whose causal mask is still there; as many masks as the batch is wide, so
that padding tells the model nothing and the loss asks beyond the end; a length taken from the
target when the model is scored.

Departures.
- the decoder reads masks, where Gu et al. copy each word of the source as often as its fertility
  says
- the length is read from the mean over the encoder's vectors

Gu, Bradbury, Xiong, Li, Socher. Non-Autoregressive Neural Machine Translation. ICLR 2018,
arXiv:1711.02281. Huang, Tao, Zhou, Li, Huang. On the Learning of Non-Autoregressive Transformers.
ICML 2022, arXiv:2206.05975, section 3.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, one_by_one
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
    objective: "NAT",
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(y_i | X) over the words of each target, and their number."""
    asked = objective.prepare(batch, generator)
    answers = objective.answers(model, asked)
    loss, count = one_by_one(tokens_of(answers), asked.targets)
    return loss + objective.length_one_by_one(answers, asked), count


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "NAT",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes the loss by one call for all words."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def entropy(p: Float[Tensor, "..."]) -> Tensor:
    """-Σ p ln p over all entries, in nats; 0 ln 0 is 0."""
    return -torch.special.xlogy(p, p).sum()


def distribution(
    sentences: Int[Tensor, "k n"], probabilities: Float[Tensor, "k"]
) -> Float[Tensor, "u"]:
    """The probabilities of the different rows."""
    _, which = sentences.unique(dim=0, return_inverse=True)
    found = probabilities.new_zeros(int(which.max()) + 1)
    return found.scatter_add(0, which, probabilities)


def conditional_total_correlation(
    sentences: Int[Tensor, "k n"],
    probabilities: Float[Tensor, "k"],
    shown: Bool[Tensor, "n"] | None = None,
) -> float:
    """C(Y | X) in nats, of one source whose translations and their probabilities are these.

    shown: places whose words the model reads; then C is that of the others, given these, in the
        mean over what may be shown.

    Raises ValueError for what is no distribution over sentences.
    """
    if sentences.dim() != 2 or probabilities.shape != sentences.shape[:1] or not len(sentences):
        raise ValueError(
            "sentences should be (k, n), with k probabilities, got shapes "
            f"{tuple(sentences.shape)} and {tuple(probabilities.shape)}"
        )
    p = probabilities.double()
    if not bool((p >= 0).all()) or abs(float(p.sum()) - 1) > 1e-6:
        raise ValueError(f"probabilities should be 0 or more and sum to 1, got {p.tolist()[:8]}")
    n = sentences.shape[1]
    if shown is None:
        shown = torch.zeros(n, dtype=torch.bool)
    elif shown.shape != (n,) or shown.dtype != torch.bool:
        raise ValueError(
            f"shown should be bool of shape ({n},), got {shown.dtype} of {tuple(shown.shape)}"
        )
    given = entropy(distribution(sentences[:, shown], p)) if bool(shown.any()) else p.new_zeros(())
    marginal = p.new_zeros(())
    for i in (~shown).nonzero()[:, 0].tolist():
        with_it = shown.clone()
        with_it[i] = True
        marginal = marginal + entropy(distribution(sentences[:, with_it], p)) - given
    return float(marginal - (entropy(distribution(sentences, p)) - given))


# ---- module


class NAT(Parallel):
    """Asks for every word of a target, of which the decoder reads masks alone.

    vocab: how many tokens the task has. The mask is the token after them, so the model needs one
        more.
    """

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with masks in the place of the target; notes ``hidden`` and ``scored``, all of
        it, both (b, n)."""
        check_pairs("nat", batch, self.vocab)
        real = places("nat", batch)
        note("hidden", real)
        note("scored", real)
        return replace(
            batch,  # type: ignore[type-var]
            inputs=torch.full_like(batch.targets, self.vocab),
            targets=batch.targets.masked_fill(~real, UNSCORED),
            padding=decoder_padding(real),
            structure=open_to_all(batch.targets),
        )


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="nat",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(scored=s, hidden="the whole target", models=NAT.models, source=True),
    options=ParallelOptions,
    build=NAT,
    variants=({"length": 0.1},),
    aliases=("non_autoregressive",),
    demo="""
    >>> task = attnlab.tasks.task("two_dialects", words=3, symbols=10)
    >>> asked = attnlab.build("nat", vocab=task.vocab).prepare(task.batch("train", 1, seed=0))
    >>> task.vocab, asked.inputs.tolist()  # the mask is the token after those of the task
    (31, [[31, 31, 31]])
    >>> from attnlab.objectives.nat import conditional_total_correlation
    >>> both, p = task.translations(asked.source)
    >>> round(conditional_total_correlation(both[0], p[0]), 3)  # 2 ln 2: it mixes dialects
    1.386
    """,
)
