"""Widths and projections of multi-head latent attention."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.norms import RMSNorm
from attnlab.core.options import Options, Size
from attnlab.core.positions import Rotation, positions_of
from attnlab.core.shapes import Context, KeyPadding, Tokens, checked

EPSILON = 1e-6
"""Of both norms, as in the released models."""


class Widths(NamedTuple):
    """Numbers of a token: d, r, k and e of the equation."""

    content: Any
    rotated: Any
    latent: Any
    value: Any


@dataclass(frozen=True, kw_only=True)
class MultiHeadLatentOptions(Options):
    """Widths; those that are None follow from that of a head, dim / heads.

    ``latent_dim``        k, what is kept of a token; by default 4 heads wide, as in DeepSeek-V2.
    ``rotated_dim``       r, the part that is turned by positions.
    ``query_latent_dim``  width of the latent that queries are made of; None: of the tokens.
    ``content_dim``       d, the part of a query that is not turned.
    ``value_dim``         e, the width of a value.
    ``stretch``           to how many times its length YaRN has stretched the model.
    ``mscale``            YaRN's m: how much the scale grows with the stretch.
    """

    latent_dim: Size | None = None
    rotated_dim: Size | None = None
    query_latent_dim: Size | None = None
    content_dim: Size | None = None
    value_dim: Size | None = None
    stretch: float = 1.0
    mscale: float = 1.0

    def check(self) -> None:
        if self.stretch < 1:
            raise ValueError(
                f"stretch is how many times longer the texts have become, at least 1, got "
                f"{self.stretch}"
            )

    def widths(self, of_head: Any) -> Widths:
        """d, r, k and e for heads of this width, a number or a letter."""
        return Widths(
            self.content_dim or of_head,
            self.rotated_dim or of_head,
            self.latent_dim or 4 * of_head,
            self.value_dim or of_head,
        )

    def scale(self, widths: Widths) -> float:
        """1/√(d + r), times the square of YaRN's factor."""
        factor = 0.1 * self.mscale * math.log(self.stretch) + 1
        return float(factor**2 * (widths.content + widths.rotated) ** -0.5)


class LatentHeads(Heads):
    """The projections. ``latent`` makes [c, kᴿ] of a token, ``norm`` is that of c; ``key`` and
    ``value`` are Wᵏ and Wᵛ of all heads."""

    values_called = False

    def __init__(
        self, dim: int, heads: int, options: MultiHeadLatentOptions, positions: Rotation | None
    ) -> None:
        super().__init__(dim, heads, value_dim=options.value_dim, positions=positions)
        self.widths = d, r, k, e = options.widths(self.head_dim)
        self.head_dim = d
        self.query: nn.Module = _made_of(dim, options.query_latent_dim, heads * (d + r))
        self.latent, self.norm = nn.Linear(dim, k + r, bias=False), RMSNorm(k, eps=EPSILON)
        self.key = nn.Linear(k, heads * d, bias=False)
        self.value = nn.Linear(k, heads * e, bias=False)

    def check_positions(self, *, causal: bool) -> None:
        if self.positions is not None:
            self.positions.check_layer(self.heads, self.widths.rotated, causal=causal)

    @checked
    def project(
        self, x: Tokens, context: Context = None, *, padding: KeyPadding = None, start: int = 0,
        at: Int[Tensor, "b n"] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Queries (b, h, n, d + r) with both parts; and what is kept, as a key and a value of one
        head: the rotated key (b, 1, m, r) and the latent (b, 1, m, k)."""
        self.check_input(x, "x")
        if context is not None:
            self.check_input(context, "context")
        kept = zero_nonfinite_padding(x if context is None else context, padding)
        x = kept if context is None else x
        d, r, k, _ = self.widths
        q, q_turned = self.split(self.query(x), d + r).split((d, r), dim=-1)
        latent, k_turned = self.latent(kept)[:, None].split((k, r), dim=-1)
        if self.positions is not None:
            if context is not None:
                raise ValueError(
                    "a layer with positions has no cross-attention: the tokens of a context stand "
                    "at positions of another sequence"
                )
            if at is None:
                at = positions_of(x.shape[1], x.device, padding=padding, start=start)
            q_turned, k_turned = self.positions(q_turned, k_turned, at)
        return torch.cat((q, q_turned), dim=-1), k_turned, self.norm(latent)


def _made_of(dim: int, latent: int | None, width: int) -> nn.Module:
    """Queries of the tokens, or of a latent of their own."""
    if latent is None:
        return nn.Linear(dim, width, bias=False)
    down, up = nn.Linear(dim, latent, bias=False), nn.Linear(latent, width, bias=False)
    return nn.Sequential(down, RMSNorm(latent, eps=EPSILON), up)
