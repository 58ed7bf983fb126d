r"""Masked language model: some tokens are hidden, and the tokens on both sides tell what they were.

Of each text $x$ a set $M$ of positions is drawn, 15 % of them. A model that sees both sides reads
$\hat{x}$, the text in which they are hidden, and answers at each position of $M$:

$$\ell = -\sum_{i \in M} \log p(x_i \mid \hat{x}),\qquad
  \hat{x}_i = \begin{cases} \text{[MASK]} & 80\,\% \\ \text{a random token} & 10\,\% \\
  x_i & 10\,\% \end{cases}\quad (i \in M)$$

The text of a task has no masks. So one position in five of $M$ does not show one: there the model
has to ask of a token whether it is the right one. All of $M$ is scored, also where the token was
kept. A text gives 15 % as many answers as the next token would; in return each is read from both
sides.

BERT drew ten sets for each text before training (``copies=10``); RoBERTa draws a new one whenever
the text is read, the default here. Whole words (``word_starts``): all tokens of a word are hidden
or none, so that no piece of a word gives the others away. "Cramming" trains with ``rate=0.25`` and
masks alone (``masks=1``).

``naive``  the equation, one position after the other.
``fused``  PyTorch's cross-entropy over all of them.

Common mistakes: a loss at the masks alone; a loss at every position, most of which can be copied;
padding that is masked; random tokens that may be the mask itself.

Departures.
- as many positions of each row as the rate says, where some well-known code asks each token alone
- no [CLS] and [SEP]; BERT's limit of 20 positions is for its rows of 128 and left out
- whole words are taken in a random order until the next does not fit; BERT tries the others, too

Devlin, Chang, Lee, Toutanova. BERT: Pre-training of Deep Bidirectional Transformers. NAACL 2019,
arXiv:1810.04805, section 3.1. Liu, Ott, Goyal, Du, Joshi, Chen, Levy, Lewis, Zettlemoyer, Stoyanov.
RoBERTa. arXiv 2019, arXiv:1907.11692, section 4.1. Geiping, Goldstein. Cramming: Training a
Language Model on a Single GPU in One Day. ICML 2023, arXiv:2212.14034.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import (
    check_tokens,
    digest,
    lowest,
    lowest_words,
    real_tokens,
    rows_from,
    share_of,
    uniform,
)

# ---- options


@dataclass(frozen=True, kw_only=True)
class MaskedLMOptions(Options):
    """What is hidden.

    rate: the share of the real tokens of each row that is hidden and scored.
    masks, random: of those the shares that become the mask and a random token; others are kept.
    copies: how many sets of positions each text has, one of which is drawn whenever it is read;
        not given, a new set each time.
    word_starts: the tokens with which a word begins; given, whole words are hidden.
    """

    rate: float = 0.15
    masks: float = 0.8
    random: float = 0.1
    copies: Size | None = None
    word_starts: Sequence[int] = ()

    def check(self) -> None:
        for name in ("rate", "masks", "random"):
            check_share(name, getattr(self, name))
        if self.masks + self.random > 1:
            raise ValueError(
                "masks and random are shares of what is hidden, at most 1 together, got "
                f"masks={self.masks} and random={self.random}"
            )


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: MaskedLMOptions = MaskedLMOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_i | x̂) over the hidden positions i, and their number."""
    asked = MaskedLM(vocab, options).prepare(batch, generator)
    return one_by_one(logits_of(model, asked), asked.targets)


def fused(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: MaskedLMOptions = MaskedLMOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes the loss by one call for all positions."""
    return MaskedLM(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "fused": fused}

# ---- module


class MaskedLM(CrossEntropy):
    """Hides a share of the tokens of each row.

    vocab: how many tokens the text has. The mask is the token after them, so the model needs one
        more.
    """

    models = ("token_classifier",)
    specials = 1

    def __init__(self, vocab: Size, options: MaskedLMOptions = MaskedLMOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with hidden tokens, and as targets what they were.

        Notes ``scored``, and of these ``hidden`` (the model sees a mask) and ``replaced`` (it sees
        a random token), each (b, n), True there.
        """
        check_tokens("masked_lm", batch, self.vocab)
        o = self.options
        tokens, real = batch.inputs, real_tokens(batch)
        order, kind, other = self._draws(tokens, generator).unbind(1)
        count = share_of(real, o.rate)
        if o.word_starts:
            begins = torch.isin(tokens, torch.tensor(o.word_starts))
            scored = lowest_words(order, begins, real, count)
        else:
            scored = lowest(order, real, count)
        hidden = scored & (kind < o.masks)
        replaced = scored & ~hidden & (kind < o.masks + o.random)
        seen = torch.where(replaced, (other * self.vocab).long(), tokens)
        note("hidden", hidden)
        note("replaced", replaced)
        note("scored", scored)
        return replace(
            batch,  # type: ignore[type-var]
            inputs=seen.masked_fill(hidden, self.vocab),
            targets=tokens.masked_fill(~scored, UNSCORED),
        )

    def _draws(self, tokens: Tensor, generator: torch.Generator | None) -> Tensor:
        """Uniform numbers (b, 3, n): the order of positions, what becomes of each, other tokens."""
        b, n = tokens.shape
        if self.options.copies is None:
            return uniform(torch.Size((b, 3, n)), generator)
        copy = torch.randint(self.options.copies, (b,), generator=generator)
        return rows_from(digest(tokens) + copy, n)


# ---- card

(n,) = letters("n")

CARD = Card(
    __doc__,
    name="masked_lm",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(scored=0.15 * n, hidden="15 % of the tokens", models=MaskedLM.models),
    options=MaskedLMOptions,
    build=MaskedLM,
    variants=({"rate": 0.4, "masks": 0.5, "random": 0.3}, {"copies": 2}, {"word_starts": (1, 2)}),
    aliases=("mlm", "bert", "roberta"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.randint(50, (1, 100))
    >>> asked = attnlab.build("masked_lm", vocab=50).prepare(Batch(tokens, tokens))
    >>> (asked.targets >= 0).sum().item()  # 15 of 100 tokens are asked
    15
    >>> 8 <= (asked.inputs == 50).sum().item() <= 15  # most of them are masks, which is token 50
    True
    """,
)
