r"""Span corruption: spans of a text are cut out, and the model writes what stood in each gap.

Of the n tokens of a text, 15 % are noise, in spans of 3 tokens in the mean. An encoder reads the
text with one *sentinel* in the place of each span; a decoder writes each sentinel again and after
it the tokens of its span:

$$\begin{aligned}
  \text{source}&: \; x_1 x_2 \langle 0 \rangle x_6 x_7 \langle 1 \rangle \text{end} \\
  \text{target}&: \; \langle 0 \rangle x_3 x_4 x_5 \langle 1 \rangle x_8 \text{end}
\end{aligned}$$

$$\text{noise} = \mathrm{round}(0.15\, n),\qquad \text{spans} = \mathrm{round}(\text{noise} / 3)$$

Both are at least 1. The lengths of the spans are drawn from all ways to write the noise as so many
positive numbers, each as likely as another, and so are the lengths of what is kept between them.
Kept text and spans alternate and kept text comes first: the first token is never cut out, the last
always is.

The source is shorter than the text, and the target short, so a step costs less than that of a
masked language model. The model learns to write several tokens for one gap, of which it is not told
how many. ByT5 reads bytes, and takes spans of 20 (``span=20``).

``naive``       source and target row by row, token by token.
``vectorised``  all rows at once.

Common mistakes: a decoder that reads the token it has to write; sentinels that two spans share;
spans that touch, which would be one span.

Departures.
- sentinels count upwards after the text's own tokens; T5's count down from its last token
- the decoder begins with a token of its own, where T5's begins with padding

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu. Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683, section 3.1.4. Xue,
Barua, Constant, Al-Rfou, Narang, Kale, Roberts, Raffel. ByT5. TACL 2022, arXiv:2105.13626.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.objectives.batches import Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens, lengths, real_tokens
from attnlab.objectives.sources import from_source, padded
from attnlab.objectives.spans import Ids, SpanOptions, corrupted, noise_places

# ---- options


@dataclass(frozen=True, kw_only=True)
class SpanCorruptionOptions(SpanOptions):
    """How much is cut out, see ``attnlab.objectives.spans``."""


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SpanCorruptionOptions = SpanCorruptionOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p over the target, written row by row."""
    ids = Ids.of(vocab, options)
    noise = noise_places(real_tokens(batch), options, generator)
    rows = []
    for tokens, real, cut in zip(batch.inputs, real_tokens(batch), noise, strict=True):
        source, target, gaps = list[int](), list[int](), 0
        for i in range(int(real.sum())):
            if cut[i] and not cut[i - 1]:
                source.append(ids.sentinel + gaps)
                target.append(ids.sentinel + gaps)
                gaps += 1
            (target if cut[i] else source).append(int(tokens[i]))
        rows.append((source + [ids.end] * bool(gaps), target + [ids.end] * bool(gaps)))
    sources, targets = ([row[side] for row in rows] for side in (0, 1))
    asked = from_source(batch, *padded(sources), *padded(targets), ids.start)
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SpanCorruptionOptions = SpanCorruptionOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return SpanCorruption(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


# ---- module


class SpanCorruption(CrossEntropy):
    """Cuts spans out of each row, for an encoder-decoder.

    vocab: how many tokens the text has; the model needs ``sentinels`` + 2 more.
    """

    models = ("encoder_decoder",)

    def __init__(
        self, vocab: Size, options: SpanCorruptionOptions = SpanCorruptionOptions()
    ) -> None:
        super().__init__()
        self.vocab, self.options, self.specials = vocab, options, options.sentinels + 2

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        """The longest source or target of texts of that length."""
        n = torch.arange(length + 1)
        noise = self.options.noise(n)
        spans = self.options.spans(noise, n)
        return int(torch.maximum(n - noise, noise).add(spans).amax()) + 1

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Source and target; notes ``hidden``, where the text is cut out (b, n)."""
        check_tokens("span_corruption", batch, self.vocab)
        lengths(batch)
        tokens, real, ids = batch.inputs, real_tokens(batch), Ids.of(self.vocab, self.options)
        cut = note("hidden", noise_places(real, self.options, generator))
        return from_source(batch, *corrupted(tokens, real, cut, ids), ids.start)


# ---- card

n, b = letters("n b")

CARD = Card(
    __doc__,
    name="span_corruption",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.2 * n + b,
        hidden="15 % of the tokens, in spans",
        models=SpanCorruption.models,
    ),
    options=SpanCorruptionOptions,
    build=SpanCorruption,
    variants=({"rate": 0.5, "span": 2}, {"span": 20}),
    aliases=("t5_spans",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(20)[None]
    >>> asked = attnlab.build("span_corruption", vocab=20).prepare(Batch(tokens, tokens))
    >>> read = {x for x in asked.source[0].tolist() if x < 20}
    >>> answered = {x for x in asked.targets[0].tolist() if 0 <= x < 20}
    >>> read | answered == {*range(20)}, read & answered  # each token is read, or else asked
    (True, set())
    """,
)
