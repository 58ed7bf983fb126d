r"""Evolved Transformer: a cell that was found by a search, with convolutions beside attention.

The search began with the transformer's own layer and changed it for many generations of a
tournament: candidates that are better than the mean of the survivors are trained for longer, and
the winners are varied again. What it found is as deep as two layers of a transformer, so 3 cells of
an encoder stand for 6 layers and 4 of a decoder for 6. Each line is normalised first and added to
its input, $x \leftarrow x + f(N(x))$; a narrower sum is filled up with zeros:

    encoder   W_v x ⊙ sigmoid(W_g x)
              sep₉ N(relu(W x) + relu(conv₃ x))            dim → 4 dim, dim / 2; then → dim / 2
              attention;   W₂ relu(W₁ x), hidden width 4 dim
    decoder   attention of at least 16 heads + cross-attention, both of the same N(x)
              sep₇ N(relu(sep₁₁ x) + sep₇ x)               dim → 2 dim, dim / 2; then → dim
              attention;   cross-attention;   W₂ N(swish(W₁ x)), hidden width 4 dim

conv₃ is a convolution over 3 places. A separable convolution, sep, is one kernel for each channel
and then a matrix: k·c + c·c' numbers in the place of k·c·c'. In the decoder each has its places on
the left, so it is padded by k − 1 zeros: 10, 6 and 6.

These cells are modules of their own, called like the layers that a stack holds, and
``TinyTransformer(block="evolved")`` stacks them: a cell decides attention, feed-forward layers and
joins together, so those options are refused beside it.

Common mistakes: **padding that is not masked before every convolution**: attention has a mask, but
a convolution reads what stands beside the last token, also after a norm has given zeros the value
of its shift; halving the number of cells without counting them as two layers; taking the estimate
of the carbon of the whole search for that of training the cell that it found.

Departures.
- the hidden layer of a decoder's feed-forward layer is normalised: not in the figure, but in the
  released code, and in the counts that are quoted (``attnlab.models.published``)
- no dropout; no decoding step by step, which would have to keep the last 10 inputs of convolutions

So, Le, Liang. The Evolved Transformer. ICML 2019, arXiv:1901.11117, figure 3.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.heads import zero_nonfinite_padding
from attnlab.core.options import Size, check_value
from attnlab.mechanisms.dense.full import FullAttention

MOST_HEADS = 16
"""The first attention of a decoder's cell has as many heads, or more."""


def widened(x: Tensor, width: int) -> Tensor:
    """Zeros after the last numbers of each vector, up to this width."""
    return F.pad(x, (0, width - x.shape[-1]))


class Convolution(nn.Module):
    """Over the places of a sequence: (b, n, dim) → (b, n, out), with zeros beyond the ends.

    causal: a place sees those on its left and itself, not as many on both sides.
    separable: one kernel for each channel, then a matrix.
    """

    def __init__(
        self, dim: Size, out: Size, size: Size, *, causal: bool = False, separable: bool = True
    ) -> None:
        super().__init__()
        self.beyond = (size - 1, 0) if causal else ((size - 1) // 2, size // 2)
        if separable:
            self.kernels: nn.Module = nn.Conv1d(dim, dim, size, groups=dim, bias=False)
            self.mixed: nn.Module = nn.Linear(dim, out)
        else:
            self.kernels, self.mixed = nn.Conv1d(dim, out, size), nn.Identity()

    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n out"]:
        """``padding``, True at real tokens, makes zeros of the others before they are read."""
        seen = F.pad(zero_nonfinite_padding(x, padding).mT, self.beyond)
        out: Tensor = self.mixed(self.kernels(seen).mT)
        return out


class Feed(nn.Sequential):
    """Two linear layers, with a curve, or a curve and a norm, in between; hidden width 4 dim."""

    def __init__(self, dim: int, *between: nn.Module) -> None:
        super().__init__(nn.Linear(dim, 4 * dim), *between, nn.Linear(4 * dim, dim))


class EncoderCell(nn.Module):
    """One cell of the encoder: (b, n, dim) → (b, n, dim)."""

    def __init__(self, dim: Size, heads: Size) -> None:
        super().__init__()
        self.dim = _even(dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(4))
        self.value, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.left = nn.Linear(dim, 4 * dim)
        self.right = Convolution(dim, dim // 2, 3, separable=False)
        self.between = nn.LayerNorm(4 * dim)
        self.after = Convolution(4 * dim, dim // 2, 9)
        self.attention = FullAttention(dim, heads)
        self.feed = Feed(dim, nn.ReLU())

    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        gate, convolve, attend, feed = self.norms
        x = zero_nonfinite_padding(x, padding)
        h = gate(x)
        x = x + self.value(h) * self.gate(h).sigmoid()
        x = x + self.convolved(convolve(x), padding)
        x = x + self.attention(attend(x), padding)
        out: Tensor = x + self.feed(feed(x))
        return out

    def convolved(self, h: Tensor, padding: Tensor | None) -> Tensor:
        """What the two branches of the second line add."""
        narrow = self.right(h, padding).relu()
        both = self.left(h).relu() + widened(narrow, 4 * self.dim)
        return widened(self.after(self.between(both), padding), self.dim)


class DecoderCell(nn.Module):
    """One cell of the decoder: (b, n, dim) and the encoded source (b, m, dim) → (b, n, dim)."""

    def __init__(self, dim: Size, heads: Size) -> None:
        super().__init__()
        self.dim = _even(dim)
        many = max(MOST_HEADS, heads)
        if dim % many:
            raise ValueError(
                f"dim should be a multiple of {many}, the heads of the first attention of a "
                f"decoder's cell, got dim={dim}"
            )
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(5))
        self.many = FullAttention(dim, many, causal=True)
        self.cross = nn.ModuleList(FullAttention(dim, heads) for _ in range(2))
        self.left = Convolution(dim, 2 * dim, 11, causal=True)
        self.right = Convolution(dim, dim // 2, 7, causal=True)
        self.between = nn.LayerNorm(2 * dim)
        self.after = Convolution(2 * dim, dim, 7, causal=True)
        self.attention = FullAttention(dim, heads, causal=True)
        self.feed = Feed(dim, nn.SiLU(), nn.LayerNorm(4 * dim))

    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        if memory is None:
            raise ValueError("a decoder's cell reads an encoded source; give it as memory=…")
        source = {"context": memory, "context_padding": memory_padding}
        first, convolve, attend, cross, feed = self.norms
        x = zero_nonfinite_padding(x, padding)
        h = first(x)
        x = x + self.many(h, padding) + self.cross[0](h, **source)
        x = x + self.convolved(convolve(x), padding)
        x = x + self.attention(attend(x), padding)
        x = x + self.cross[1](cross(x), **source)
        out: Tensor = x + self.feed(feed(x))
        return out

    def convolved(self, h: Tensor, padding: Tensor | None) -> Tensor:
        """What the two branches of the second line add."""
        narrow = widened(self.right(h, padding), 2 * self.dim)
        both = self.left(h, padding).relu() + narrow
        out: Tensor = self.after(self.between(both), padding)
        return out


class EvolvedTransformer(nn.Module):
    """An encoder and a decoder of such cells on vectors: (b, n, dim) and a source (b, m, dim) →
    (b, n, dim), normalised.

    encoder, decoder: how many cells; 3 and 4 stand for the 6 and 6 layers of a transformer.
    """

    def __init__(self, dim: Size, heads: Size, *, encoder: Size = 3, decoder: Size = 4) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(EncoderCell(dim, heads) for _ in range(encoder))
        self.decoder = nn.ModuleList(DecoderCell(dim, heads) for _ in range(decoder))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))

    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        source: Float[Tensor, "b m dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        source_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        for cell in self.encoder:
            source = cell(source, source_padding)
        source = self.norms[0](source)
        for cell in self.decoder:
            x = cell(x, padding, source, source_padding)
        out: Tensor = self.norms[1](x)
        return out


def _even(dim: Size) -> int:
    check_value("dim", dim, Size)
    if dim % 2:
        raise ValueError(f"dim should be even, as one branch has half of it, got dim={dim}")
    return int(dim)
