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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens, lengths, lowest, real_tokens, uniform

# ---- options


@dataclass(frozen=True, kw_only=True)
class SpanCorruptionOptions(Options):
    """How much is cut out.

    rate: the share of the real tokens of each row.
    span: the mean length of a span, in tokens.
    sentinels: the most spans that a row can have.
    """

    rate: float = 0.15
    span: Size = 3
    sentinels: Size = 100

    def check(self) -> None:
        check_share("rate", self.rate)

    def noise(self, n: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """How many of n tokens are cut out: at least 1, and one is kept; 0 of fewer than two."""
        most = (n - 1).clamp(min=0)
        return (n * self.rate).round().long().clamp(min=1).minimum(most)

    def spans(self, noise: Int[Tensor, "b"], n: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """In how many spans, with kept text before each."""
        wanted = (noise / self.span).round().long().clamp(min=1)
        return wanted.minimum(noise).minimum(n - noise)


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
    asked = from_source(batch, *_padded(sources), *_padded(targets), ids)
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: SpanCorruptionOptions = SpanCorruptionOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """The same, all rows at once."""
    return SpanCorruption(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


class Ids(NamedTuple):
    """The tokens after those of the text."""

    sentinel: int
    end: int
    start: int

    @classmethod
    def of(cls, vocab: int, options: SpanCorruptionOptions) -> "Ids":
        return cls(vocab, vocab + options.sentinels, vocab + options.sentinels + 1)


def noise_places(
    real: Bool[Tensor, "b n"], options: SpanCorruptionOptions, generator: torch.Generator | None
) -> Bool[Tensor, "b n"]:
    """True at the tokens that are cut out, for real tokens at the beginning of each row."""
    b, n = real.shape
    length = real.sum(-1)
    noise = options.noise(length)
    spans = options.spans(noise, length)
    if b and int(spans.amax()) > options.sentinels:
        raise ValueError(
            f"a row has {int(spans.amax())} spans, more than sentinels={options.sentinels}; take "
            "more sentinels, or longer spans"
        )
    place = torch.arange(n)
    of_noise = place[None] >= (length - noise)[:, None]  # slots: what is kept, then the noise
    first = (place == 0) | (place[None] == (length - noise)[:, None])
    scores = uniform(torch.Size((2, b, n)), generator)
    cuts = torch.zeros(b, n, dtype=torch.bool)
    for kind, inside in enumerate((~of_noise, of_noise & real)):
        cuts |= lowest(scores[kind], inside & ~first & real, spans - 1)
    segment = torch.where(of_noise, _since(cuts & of_noise), _since(cuts & ~of_noise))
    slots = (2 * segment + of_noise).masked_fill(~real, 2 * n + 2).argsort(stable=True)
    return of_noise.gather(1, slots) & real


def _since(cuts: Bool[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    return cuts.long().cumsum(-1)


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of tokens with zeros at their ends, and where they have tokens."""
    width = max(1, *map(len, rows)) if rows else 1
    tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]).reshape(-1, width)
    return tokens, torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]


def from_source(
    batch: Batch, source: Tensor, source_real: Tensor, target: Tensor, real: Tensor, ids: Ids
) -> Batch:
    """The batch of an encoder-decoder, which reads at each place the target of the place before."""
    before = target.roll(1, dims=1)
    before[:, 0] = ids.start
    return replace(
        batch,  # type: ignore[type-var]
        inputs=before.masked_fill(~real, 0),
        targets=target.masked_fill(~real, UNSCORED),
        padding=real,
        source=source,
        source_padding=source_real,
    )


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
        begins = cut & ~cut.roll(1, dims=1)  # the first token is never cut
        sentinels = ids.sentinel + begins.long().cumsum(-1) - 1
        any_cut = cut.any(-1, keepdim=True)
        source = _packed(torch.where(begins, sentinels, tokens), (real & ~cut) | begins)
        # Before each span its sentinel stands in the last place that was kept.
        heads = begins.roll(-1, dims=1)
        heads[:, -1:] = False
        target = _packed(torch.where(heads, sentinels.roll(-1, dims=1), tokens), cut | heads)
        return from_source(
            batch, *_with_end(*source, any_cut, ids.end), *_with_end(*target, any_cut, ids.end), ids
        )


def _packed(tokens: Int[Tensor, "b n"], kept: Bool[Tensor, "b n"]) -> tuple[Tensor, Tensor]:
    """The kept tokens of each row at its beginning, and where they are."""
    width = max(1, int(kept.sum(-1).amax())) if len(kept) else 1
    to = torch.where(kept, kept.long().cumsum(-1) - 1, width)
    out = tokens.new_zeros(len(tokens), width + 1).scatter_(1, to, tokens)[:, :width]
    return out, torch.arange(width) < kept.sum(-1, keepdim=True)


def _with_end(tokens: Tensor, real: Tensor, rows: Tensor, end: int) -> tuple[Tensor, Tensor]:
    """One more token at the end of those rows."""
    tokens, real = (nn.functional.pad(x, (0, 1)) for x in (tokens, real))
    last = (torch.arange(tokens.shape[1]) == real.sum(-1, keepdim=True)) & rows
    tokens = tokens.masked_fill(~real, 0).masked_fill(last, end)
    real = real | last
    width = max(1, int(real.sum(-1).amax())) if len(real) else 1
    return tokens[:, :width], real[:, :width]


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
