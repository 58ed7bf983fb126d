r"""Prefix language model: the beginning of a text is read from both sides, the rest is written.

Of a text $x_1 \dots x_n$ the first $p$ tokens are given, and p is drawn anew for each text. Every
token of this prefix sees all of it, as in an encoder; later tokens see what came before, as in a
decoder. One stack does both, and the loss is that of the next token after the prefix:

$$\ell = -\sum_{t = p}^{n} \log p(x_{t+1} \mid x_1, \dots, x_t),\qquad
  i \text{ sees } j \iff j \le i \ \text{or}\ j \le p$$

The last token of the prefix is the first that answers. Earlier ones have seen their answer. With p
= 1 this is ``next_token``. A text that is all prefix is read as an encoder reads it.

With p drawn from 1 to n, half of the targets are scored: a causal model learns from all of them
instead, and reads its input from one side. An encoder-decoder of L + L layers is the third way: it
costs as much as this stack of L layers, and has twice the weights.

``attnlab.generate(…, prefix=p)`` writes on after a prompt that is read from both sides.

``naive``       who sees whom as loops over two positions.
``vectorised``  one comparison for the batch.

Common mistakes: a loss inside the prefix, whose answers can be copied; no loss at its last token,
which does not see its answer; padding counted in p.

Departures.
- p from 1 to n, each as likely; T5 splits at a random place and says no more
- no separator after the prefix

Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser, Shazeer. Generating Wikipedia by Summarizing Long
Sequences. ICLR 2018, arXiv:1801.10198. Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li,
Liu. Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer. JMLR 2020,
arXiv:1910.10683, sections 3.2.1 and 3.3.1.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, check_share
from attnlab.core.probe import note
from attnlab.core.visibility import Visibility
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_text, lengths

# ---- options


@dataclass(frozen=True, kw_only=True)
class PrefixLMOptions(Options):
    """share: that of the tokens of a text which are its prefix, at least one token; not given, it
    is drawn for each text."""

    share: float | None = None

    def check(self) -> None:
        if self.share is not None:
            check_share("share", self.share)

    def drawn(self, n: Int[Tensor, "b"], generator: torch.Generator | None) -> Int[Tensor, "b"]:
        """The length p of the prefix of each text of n tokens, from 1 to n."""
        if self.share is not None:
            return (n * self.share).round().long().clamp(min=1)
        return 1 + torch.randint(2**40, n.shape, generator=generator) % n.clamp(min=1)


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    options: PrefixLMOptions = PrefixLMOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_{t+1} | x_1 … x_t) from the last token of each prefix on."""
    prefix, places = options.drawn(lengths(batch), generator), range(batch.inputs.shape[1])
    seen = [[[j <= i or j < p for j in places] for i in places] for p in prefix.tolist()]
    answers = [[t >= p - 1 for t in places] for p in prefix.tolist()]
    asked = replace(
        batch,  # type: ignore[type-var]
        targets=batch.targets.masked_fill(~torch.tensor(answers), UNSCORED),
        structure=Visibility(torch.tensor(seen)),
    )
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    options: PrefixLMOptions = PrefixLMOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return PrefixLM(options)(model, batch, generator)


def sees(prefix: Int[Tensor, "b"], n: int) -> Visibility:
    """Who sees whom among n tokens after prefixes of these lengths."""
    place = torch.arange(n, device=prefix.device)
    return Visibility((place <= place[:, None]) | (place < prefix[:, None])[:, None])


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class PrefixLM(CrossEntropy):
    """The targets of the task after a prefix, which is read from both sides."""

    models = ("language_model",)
    orders = "given"

    def __init__(self, options: PrefixLMOptions = PrefixLMOptions()) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return str(self.options)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with who sees whom, and with the targets after the prefix.

        Notes ``open``, the prefix, which is read from both sides, and ``scored``, both (b, n).
        """
        check_text("prefix_lm", batch)
        place = torch.arange(batch.inputs.shape[1])
        p = self.options.drawn(lengths(batch), generator)
        note("open", place < p[:, None])
        scored = note("scored", (place >= p[:, None] - 1) & (batch.targets != UNSCORED))
        return replace(
            batch,  # type: ignore[type-var]
            targets=batch.targets.masked_fill(~scored, UNSCORED),
            structure=sees(p, len(place)),
        )


# ---- card

s, b = letters("s b")

CARD = Card(
    __doc__,
    name="prefix_lm",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=s / 2 + b / 2, hidden="what comes after the prefix", models=PrefixLM.models
    ),
    options=PrefixLMOptions,
    build=PrefixLM,
    variants=({"share": 0.5}, {"share": 0}, {"share": 1}),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(6)[None]
    >>> asked = attnlab.build("prefix_lm", share=0.5).prepare(Batch(tokens[:, :5], tokens[:, 1:]))
    >>> asked.targets.tolist()  # two tokens are the prefix, of which the last answers
    [[-100, 2, 3, 4, 5]]
    >>> asked.structure.allowed.int()[0].tolist()[:3]  # and both see both
    [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    """,
)
