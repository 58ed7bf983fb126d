r"""Order of two texts: does the second half follow the first, or were they exchanged?

A text is cut in the middle into $a$ and $b$. A model that sees both sides reads two pieces with a
separator between them and answers how they belong together; the loss is the cross-entropy of that
one answer:

$$\ell = -\log p(c \mid \text{first}\, \langle\text{sep}\rangle\, \text{second})$$

=====================  =======================================================================
``kind``               answers, each drawn as often as another
=====================  =======================================================================
``order`` (ALBERT)     0: $a, b$; 1: $b, a$
``next`` (BERT)        0: $a, b$; 1: $a$ and a piece of another text
``both`` (StructBERT)  0: $a, b$; 1: $b, a$; 2: $a$ and a piece of another text
=====================  =======================================================================

``next`` can be answered from the subject alone: a piece of another text speaks of other things.
ALBERT exchanges the two pieces of one text instead, whose subject is the same, so that only their
order tells.

``naive``       row by row.
``vectorised``  all rows at once.

Common mistakes: the other text is the same one; the separator stands at another place when the
pieces are exchanged, which answers the question; the pieces have different lengths by class.

Departures.
- the pieces are the halves of one row, not sentences; a last odd token is left out
- ALBERT's code takes another text for rows of one sentence and calls this an exchange; not here
- the mean over all positions answers, where the papers take [CLS]

Devlin, Chang, Lee, Toutanova. BERT. NAACL 2019, arXiv:1810.04805, section 3.1. Lan, Chen, Goodman,
Gimpel, Sharma, Soricut. ALBERT. ICLR 2020, arXiv:1909.11942, section 3.1. Wang, Bi, Yan, Wu, Bao,
Xia, Peng, Si. StructBERT. ICLR 2020, arXiv:1908.04577, section 2.3.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens, lengths
from attnlab.objectives.sources import padded

# ---- options


@dataclass(frozen=True, kw_only=True)
class SentenceOrderOptions(Options):
    """kind: which answers there are, see the page: "order", "next" or "both"."""

    kind: Literal["order", "next", "both"] = "order"

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers in the order of their classes."""
        known = {"order": ("next", "exchanged"), "next": ("next", "other")}
        return known.get(self.kind, ("next", "exchanged", "other"))


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SentenceOrderOptions = SentenceOrderOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-log p of the answer of each row."""
    half, answers = drawn(batch, options, generator)
    rows = []
    for i, text in enumerate(batch.inputs.tolist()):
        h = int(half[i])
        first, second = text[:h], text[h : 2 * h]
        match options.answers[int(answers[i])] if answers[i] != UNSCORED else "unscored":
            case "exchanged":
                first, second = second, first
            case "other":
                second = batch.inputs[i - 1, h : 2 * h].tolist()
        rows.append([*first, vocab, *second])
    inputs, padding = padded(rows)
    asked = replace(batch, inputs=inputs, targets=answers, padding=padding)  # type: ignore[type-var]
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SentenceOrderOptions = SentenceOrderOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return SentenceOrder(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def drawn(
    batch: Batch, options: SentenceOrderOptions, generator: torch.Generator | None
) -> tuple[Int[Tensor, "b"], Int[Tensor, "b"]]:
    """The length of the pieces of each row, and its answer.

    The other text is the row before; both rows are cut to what both have, whatever the answer is,
    so that no length tells it. A row of fewer than two tokens is not scored, and a batch of one row
    has no other text.
    """
    n = lengths(batch)
    half = n // 2
    if "other" in options.answers:
        half = half.minimum(half.roll(1))
    answers = torch.randint(len(options.answers), half.shape, generator=generator)
    alone = len(half) == 1 and "other" in options.answers
    impossible = (half == 0) | (alone & (answers == len(options.answers) - 1))
    return half, answers.masked_fill(impossible, UNSCORED)


# ---- module


class SentenceOrder(CrossEntropy):
    """Cuts each row into two pieces and asks how they belong together.

    vocab: how many tokens the text has. The separator is the token after them, so the model needs
        one more.
    """

    models = ("classifier",)
    specials = 1

    def __init__(self, vocab: Size, options: SentenceOrderOptions = SentenceOrderOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options
        self.classes = len(options.answers)

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        return length + 1

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The two pieces of each row, and which answer is right (b,).

        Notes ``replaced``, where a piece of another text stands (b, n), True there.
        """
        check_tokens("sentence_order", batch, self.vocab)
        half, answers = drawn(batch, self.options, generator)
        place, h = torch.arange(int(2 * half.amax()) + 1), half[:, None]
        second = place > h
        names = [*self.options.answers, ""]  # -100 has no name
        of_row = answers.where(answers != UNSCORED, len(names) - 1)
        exchanged, other = (
            (torch.tensor([name == wanted for name in names])[of_row])[:, None]
            for wanted in ("exchanged", "other")
        )
        source = place - second.long() + torch.where(second, -h, h) * exchanged
        source = source.clamp(0, batch.inputs.shape[1] - 1)
        tokens = batch.inputs.gather(1, source)
        before = batch.inputs.roll(1, dims=0).gather(1, source)
        replaced = note("replaced", second & other & (place <= 2 * h))
        tokens = torch.where(replaced, before, tokens).masked_fill(place == h, self.vocab)
        padding = place <= 2 * h
        return replace(
            batch,  # type: ignore[type-var]
            inputs=tokens.masked_fill(~padding, 0),
            targets=answers,
            padding=padding,
        )


# ---- card

(b,) = letters("b")

CARD = Card(
    __doc__,
    name="sentence_order",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=b, hidden="which of two pieces came first", models=SentenceOrder.models
    ),
    options=SentenceOrderOptions,
    build=SentenceOrder,
    variants=({"kind": "next"}, {"kind": "both"}),
    aliases=("sop", "next_sentence", "nsp"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(8)[None]
    >>> objective = attnlab.build("sentence_order", vocab=8)
    >>> drawn = [objective.prepare(Batch(tokens, tokens)) for _ in range(20)]
    >>> for text, answer in sorted({(str(x.inputs.tolist()), x.targets.item()) for x in drawn}):
    ...     print(text, "exchanged" if answer else "in order")
    [[0, 1, 2, 3, 8, 4, 5, 6, 7]] in order
    [[4, 5, 6, 7, 8, 0, 1, 2, 3]] exchanged
    """,
)
