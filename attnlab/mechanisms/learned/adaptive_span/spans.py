"""How far a span reaches and how it fades, and what it costs in the loss."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.core.options import Options, Size
from attnlab.core.probe import Notes, note
from attnlab.core.tracing import is_abstract


@dataclass(frozen=True, kw_only=True)
class AdaptiveSpanOptions(Options):
    """How far a span may reach, and how it fades.

    ``max_span``      S, the longest span: keys further back are never attended to.
    ``ramp``          R, the number of tokens over which a weight fades to zero.
    ``include_self``  whether a token attends to itself, too.
    """

    max_span: Size = 1024
    ramp: Size = 32
    include_self: bool = False

    def mask(self, distances: Tensor, span: Tensor) -> Tensor:
        """m_z of distances i - j: between 0 and 1, and 0 beyond S and for keys not in the past."""
        soft = ((self.ramp + span - distances) / self.ramp).clamp(0, 1)
        return soft * ((distances >= 1 - self.include_self) & (distances <= self.max_span))

    def reach(self, span: Tensor, m: int) -> int:
        """The largest distance of m positions that any span reaches; that of S where spans cannot
        be looked at."""
        longest = max(1, min(self.max_span, m - 1))
        if is_abstract(span) or not span.numel():
            return longest
        far = float(span.detach().max()) + self.ramp
        return max(1, math.ceil(far) - 1) if far < longest else longest


def penalty(notes: Notes) -> Tensor:
    """The mean span of a layer's heads (and real tokens), summed over all recorded layers.

        with attnlab.core.probe.record() as notes:
            loss = loss_of(model(x)) + price * penalty(notes)

    ``price`` is the paper's λ, the loss that one token of span costs.
    """
    spans = zip(notes["span"], notes["real"], strict=True)
    return torch.stack([_mean(span, real) for span, real in spans]).sum()


def _mean(span: Tensor, real: Tensor) -> Tensor:
    """Over heads (h,), or over heads and real tokens (b, h, n)."""
    if span.ndim == 1:
        return span.mean()
    return (span * real).sum() / real.expand_as(span).sum().clamp(min=1)


def noted(span: Tensor, n: int, padding: Tensor | None) -> Tensor:
    """The span, noted beside which of the n queries are real tokens (b or 1, 1, n)."""
    every = span.new_ones(1, 1, n, dtype=torch.bool)
    note("real", every if padding is None else padding[:, None, padding.shape[1] - n :])
    return note("span", span)
