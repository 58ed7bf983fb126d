r"""Semi-causal language model: pieces of a text are read from both sides, the rest is written.

Spans $[s_1, e_1), [s_2, e_2), \dots$ of a text are drawn, none beside another. Inside a span every
token sees the whole span, as in an encoder; all other tokens see what came before. Only tokens
outside the spans are asked, each from the position before it, which for the first token after a
span is the span's last:

$$\ell = -\sum_{i} \sum_{t = e_i}^{s_{i+1} - 1} \log p(x_t \mid x_{<t}),\qquad
  i \text{ sees } j \iff j \le i \ \text{or both stand in one span}$$

Where it has no span this is ``next_token``, with one at the beginning ``prefix_lm``, and with one
over the whole text an encoder that is asked for the next token alone. So one model learns to read
from both sides and to write. Pieces that are read so can later be images or other modalities.

The number of spans is drawn for each text, from 0 to ``spans``, and so are the places where they
begin and end, each choice as likely as another.

``naive``       who sees whom as loops over two positions.
``vectorised``  one comparison for the batch.

Common mistakes: a loss inside a span, where the answer is seen; spans that touch, which would be
one span; the first token after a span that is not asked.

Departures.
- the paper reads each span by an encoder of its own, without the text before it, and a connector
  maps what it finds into the causal model; here the layers of the model do both, and a span sees
  the text before it

Hao, Song, Dong, Huang, Chi, Wang, Ma, Wei. Language Models are General-Purpose Interfaces. arXiv
2022, arXiv:2206.06336, section 2.3.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Count, Options
from attnlab.core.probe import note
from attnlab.core.visibility import Visibility
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_text, lengths, lowest, uniform

# ---- options


@dataclass(frozen=True, kw_only=True)
class SemiCausalOptions(Options):
    """spans: the most that a text has. A short text has fewer, as n tokens have n + 1 places where
    one can begin or end."""

    spans: Count = 4

    def drawn(
        self, n: Int[Tensor, "b"], width: int, generator: torch.Generator | None
    ) -> Int[Tensor, "b n"]:
        """The piece of text in which each token stands: those of odd numbers are spans."""
        between = torch.arange(width + 1) <= n[:, None]  # before each token, or after the last
        scores = uniform(between.shape, generator)
        count = torch.randint(self.spans + 1, n.shape, generator=generator)
        cuts = lowest(scores, between, 2 * count.minimum((n + 1) // 2))
        return cuts[:, :-1].long().cumsum(-1)


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    options: SemiCausalOptions = SemiCausalOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_t | x_<t, the spans before t) over the tokens t outside the spans."""
    width = batch.inputs.shape[1]
    pieces = options.drawn(lengths(batch), width, generator).tolist()
    sees = [
        [[j <= i or (piece[i] == piece[j] and piece[i] % 2 == 1) for j in range(width)]
         for i in range(width)]
        for piece in pieces
    ]  # fmt: skip
    answered = [[t + 1 == width or piece[t + 1] % 2 == 0 for t in range(width)] for piece in pieces]
    asked = replace(
        batch,  # type: ignore[type-var]
        targets=batch.targets.masked_fill(~torch.tensor(answered), UNSCORED),
        structure=Visibility(torch.tensor(sees)),
    )
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    options: SemiCausalOptions = SemiCausalOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return SemiCausal(options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class SemiCausal(CrossEntropy):
    """The targets of the task outside spans, which are read from both sides."""

    models = ("language_model",)
    orders = "given"

    def __init__(self, options: SemiCausalOptions = SemiCausalOptions()) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return str(self.options)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with who sees whom, and with the targets outside the spans.

        Notes ``open``, the spans, which are read from both sides, and ``scored``, both (b, n).
        """
        piece, targets = self.cut(batch, generator)
        width = piece.shape[1]
        place = torch.arange(width)
        ends = piece.new_zeros(len(piece), width + 1)
        ends = ends.scatter_reduce(1, piece, place.expand_as(piece), "amax")
        last = torch.where(piece % 2 == 1, ends.gather(1, piece), place)  # that a token sees
        structure = Visibility(place <= last[:, :, None])
        return replace(batch, targets=targets, structure=structure)  # type: ignore[type-var]

    def cut(
        self, batch: Batch, generator: torch.Generator | None
    ) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"]]:
        """The piece of text in which each token stands, spans having odd numbers, and the targets
        outside the spans. Notes what ``prepare`` does."""
        check_text("semi_causal", batch)
        piece = self.options.drawn(lengths(batch), batch.inputs.shape[1], generator)
        inside = note("open", piece % 2 == 1)
        # The target of the last token lies beyond the text, and so in no span.
        asked = ~nn.functional.pad(inside[:, 1:], (0, 1))
        scored = note("scored", asked & (batch.targets != UNSCORED))
        return piece, batch.targets.masked_fill(~scored, UNSCORED)


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="semi_causal",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.68 * s,  # mean of (k + 1) / (2k + 1) for k = 0, …, 4 spans
        hidden="what comes after a token, but not inside spans",
        models=SemiCausal.models,
    ),
    options=SemiCausalOptions,
    build=SemiCausal,
    variants=({"spans": 0}, {"spans": 9}),
    aliases=("metalm",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(9)[None]
    >>> asked = attnlab.build("semi_causal", spans=2).prepare(Batch(tokens[:, :8], tokens[:, 1:]))
    >>> ahead = asked.structure.allowed.triu(1).any(-1)  # who sees what comes after it
    >>> (ahead & (asked.targets >= 0)).any().item()  # is not asked
    False
    """,
)
