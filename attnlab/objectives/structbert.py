r"""StructBERT's words: beside masked tokens, runs of three are shuffled and put in order again.

Of each text $x$ 15 % of the tokens are hidden as in ``masked_lm``. Then 5 % of its trigrams, runs
of three tokens of which none is hidden, are shuffled. A model that sees both sides answers at the
hidden places $M$ and at the shuffled places $S$ which token stood there:

$$\ell = -\sum_{i \in M \cup S} \log p(x_i \mid \hat x),\qquad
  \hat x_{t+k} = x_{t + \pi(k)},\; k = 0, 1, 2,\; \pi \neq \text{identity}\quad
  (\text{trigram from } t)$$

A masked token says "something is missing here"; nothing says of three tokens that they have changed
their places. The model has to know in which order words can stand. All that is needed is still
there, so a text loses no information by this.

The other half of StructBERT, which of two sentences comes first, is ``sentence_order`` with
``kind="both"``.

``naive``  the equation, one position after the other.
``fused``  PyTorch's cross-entropy over all of them.

Common mistakes: trigrams with a mask among them; shuffled places whose target is the token that now
stands there; trigrams that overlap, which moves a token further than two places.

Departures.
- the trigrams of a row stand in one grid of three, which begins at a random place
- three tokens are never left in their order, which a sixth of all shuffles would do
- hidden tokens become masks, random tokens or stay in BERT's shares, which are no options here

Wang, Bi, Yan, Wu, Bao, Xia, Peng, Si. StructBERT: Incorporating Language Structures into
Pre-training for Deep Language Understanding. ICLR 2020, arXiv:1908.04577, section 2.2.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens, lowest, real_tokens, share_of, uniform

MASKS, RANDOM = 0.8, 0.1
"""The shares of hidden tokens that become the mask, and a random token, as of BERT."""

ORDERS = torch.tensor([[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
"""All orders of three tokens but their own."""

# ---- options


@dataclass(frozen=True, kw_only=True)
class StructBERTOptions(Options):
    """How much is hidden and how much is shuffled.

    rate: the share of the real tokens of each row that is hidden.
    shuffled: the share of its trigrams that is shuffled, where so many have no hidden token.
    """

    rate: float = 0.15
    shuffled: float = 0.05

    def check(self) -> None:
        check_share("rate", self.rate)
        check_share("shuffled", self.shuffled)


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: StructBERTOptions = StructBERTOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_i | x̂) over the hidden and the shuffled positions i, and their number."""
    asked = StructBERT(vocab, options).prepare(batch, generator)
    return one_by_one(logits_of(model, asked), asked.targets)


def fused(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: StructBERTOptions = StructBERTOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes the loss by one call for all positions."""
    return StructBERT(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "fused": fused}


def trigrams(free: Bool[Tensor, "b n"], offset: Int[Tensor, "b"]) -> Int[Tensor, "b n"]:
    """Where the trigram of each place begins, in a grid that begins at the offset; -1 for places
    that are in none whose three tokens are all free."""
    n = free.shape[1]
    place = torch.arange(n)
    start = place - (place - offset[:, None]) % 3
    inside = (start >= 0) & (start + 2 < n)
    for k in range(3):
        inside = inside & free.gather(1, (start + k).clamp(0, n - 1))
    return start.masked_fill(~inside, -1)


def shuffled_from(
    start: Int[Tensor, "b n"], count: Int[Tensor, "b"], order: Float[Tensor, "b n"],
    noise: Float[Tensor, "b n"],
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:  # fmt: skip
    """From which place the token of each place comes, and which places are in shuffled trigrams:
    so many of those that begin somewhere."""
    place = torch.arange(start.shape[1]).expand_as(start)
    begins = lowest(order, start == place, count)
    at = start.clamp(min=0)
    moved = begins.gather(1, at) & (start >= 0)
    which = (noise.gather(1, at) * len(ORDERS)).long()
    return torch.where(moved, at + ORDERS[which, (place - at) % 3], place), moved


# ---- module


class StructBERT(CrossEntropy):
    """Hides some tokens of each row and shuffles some trigrams.

    vocab: how many tokens the text has. The mask is the token after them, so the model needs one
        more.
    """

    models, specials = ("token_classifier",), 1

    def __init__(self, vocab: Size, options: StructBERTOptions = StructBERTOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with hidden tokens and shuffled trigrams, and as targets what stood there.

        Notes ``scored``, ``hidden`` (a mask is seen), ``replaced`` (a random token) and
        ``shuffled``, each (b, n), True there.
        """
        check_tokens("structbert", batch, self.vocab)
        tokens, real = batch.inputs, real_tokens(batch)
        draws = uniform(torch.Size((5, *tokens.shape)), generator)
        order, kind, other, which, noise = draws
        offset = torch.randint(3, (len(tokens),), generator=generator)
        asked = lowest(order, real, share_of(real, self.options.rate))
        start = trigrams(real & ~asked, offset)
        count = (real.sum(-1) / 3 * self.options.shuffled).round().long()
        source, moved = shuffled_from(start, count, which, noise)
        hidden = note("hidden", asked & (kind < MASKS))
        replaced = note("replaced", asked & ~hidden & (kind < MASKS + RANDOM))
        scored = note("scored", asked | note("shuffled", moved))
        seen = torch.where(replaced, (other * self.vocab).long(), tokens.gather(1, source))
        return replace(
            batch,  # type: ignore[type-var]
            inputs=seen.masked_fill(hidden, self.vocab),
            targets=tokens.masked_fill(~scored, UNSCORED),
        )


# ---- card

(n,) = letters("n")

CARD = Card(
    __doc__,
    name="structbert",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.2 * n,
        hidden="15 % of the tokens, and the order of 5 % of the trigrams",
        models=StructBERT.models,
    ),
    options=StructBERTOptions,
    build=StructBERT,
    variants=({"rate": 0.1, "shuffled": 0.5},),
    aliases=("trigram_shuffling",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(30)[None]
    >>> asked = attnlab.build("structbert", vocab=30, rate=0, shuffled=0.1).prepare(
    ...     Batch(tokens, tokens)
    ... )
    >>> places = (asked.targets[0] >= 0).nonzero()[:, 0].tolist()
    >>> len(places), places == [*range(places[0], places[0] + 3)]  # three in a row are asked
    (3, True)
    >>> sorted(asked.inputs[0].tolist()) == [*range(30)]  # and nothing is missing
    True
    """,
)
