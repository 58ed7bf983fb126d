"""Spans that are cut out of a text: how many tokens, where, and what stands in their place."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.options import Options, Size, check_share
from attnlab.objectives.hiding import lowest, uniform
from attnlab.objectives.sources import packed, with_end


@dataclass(frozen=True, kw_only=True)
class SpanOptions(Options):
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


class Ids(NamedTuple):
    """The tokens after those of the text."""

    sentinel: int
    end: int
    start: int

    @classmethod
    def of(cls, vocab: int, options: SpanOptions) -> "Ids":
        return cls(vocab, vocab + options.sentinels, vocab + options.sentinels + 1)


def noise_places(
    real: Bool[Tensor, "b n"], options: SpanOptions, generator: torch.Generator | None
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


def corrupted(
    tokens: Int[Tensor, "b n"], real: Bool[Tensor, "b n"], cut: Bool[Tensor, "b n"], ids: Ids
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The source, where it has tokens, the target, and where that has some; each ends with the end
    mark where something is cut out."""
    begins = cut & ~cut.roll(1, dims=1)  # the first token is never cut
    sentinels = ids.sentinel + begins.long().cumsum(-1) - 1
    any_cut = cut.any(-1, keepdim=True)
    source = packed(torch.where(begins, sentinels, tokens), (real & ~cut) | begins)
    # Before each span its sentinel stands in the last place that was kept.
    heads = begins.roll(-1, dims=1)
    heads[:, -1:] = False
    target = packed(torch.where(heads, sentinels.roll(-1, dims=1), tokens), cut | heads)
    return *with_end(*source, any_cut, ids.end), *with_end(*target, any_cut, ids.end)
