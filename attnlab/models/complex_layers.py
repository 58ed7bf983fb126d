r"""Layers of complex networks, on real tensors that hold [real, imaginary] (Wang et al., app. B).

A dense layer is $z = \sigma(Ax - By + c) + i\,\sigma(Bx + Ay + d)$: a complex linear map
(``core.complex_linear``), then an ordinary nonlinearity on the real and on the imaginary part. No
complex nonlinearity is involved, and so a common phase of the input does not pass through.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.complex_linear import ComplexLinear, Weights, refuse_odd
from attnlab.core.shapes import TokenPadding, Tokens


class SeparateNorm(nn.Module):
    """A layer norm of the real parts and one of the imaginary parts.

    The paper normalises over the batch, here over the width: rows of a batch do not influence each
    other, and padding does not count.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        refuse_odd("dim", dim)
        self.real, self.imaginary = nn.LayerNorm(dim // 2), nn.LayerNorm(dim // 2)

    def forward(self, x: Tokens) -> Tokens:
        real, imaginary = x.chunk(2, dim=-1)
        return torch.cat((self.real(real), self.imaginary(imaginary)), dim=-1)


class ComplexFeedForward(nn.Module):
    """Two dense layers, the first with GELU (eq. 10), at each position alone."""

    def __init__(self, dim: int, hidden: int, weights: Weights = "free") -> None:
        super().__init__()
        self.expand = ComplexLinear(dim, hidden, bias=True, weights=weights)
        self.contract = ComplexLinear(hidden, dim, bias=True, weights=weights)

    def forward(self, x: Tokens) -> Tokens:
        return self.contract(F.gelu(self.expand(x)))


class ComplexDropout(nn.Module):
    """Drops complex numbers: the real and the imaginary part together."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... dim"]:
        if not self.training or self.p == 0:
            return x
        kept = F.dropout(torch.ones_like(x[..., : x.shape[-1] // 2]), self.p)
        return x * torch.cat((kept, kept), dim=-1)


class ComplexBlock(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(
        self, attention: nn.Module, dim: int, hidden: int, dropout: float, weights: Weights
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm, self.feed_forward_norm = SeparateNorm(dim), SeparateNorm(dim)
        self.feed_forward = ComplexFeedForward(dim, hidden, weights)
        self.dropout = ComplexDropout(dropout)

    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        x = x + self.dropout(self.attention(self.attention_norm(x), padding))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
