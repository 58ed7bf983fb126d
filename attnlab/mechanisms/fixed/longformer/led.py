"""A layer of LED: Longformer encodes the source, full attention decodes."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.options import Size
from attnlab.core.patterns import Pattern
from attnlab.core.shapes import KeyPadding, TokenPadding, Tokens, checked


class EncoderDecoder(nn.Module):
    """The attention of one layer of LED: (b, n, dim) and a context (b, m, dim) → (b, n, dim).

    ``encoder``, a ``LongformerAttention``, encodes the long source; the decoder attends to all of
    its own past and to all of the source, by full attention. Each part is added to its residual
    stream; norms and feed-forward layers belong to a model. A ``TinyTransformer`` with
    ``kind="encoder_decoder"`` stacks such layers, if its ``attention`` is a function that builds a
    Longformer for ``causal=False`` and full attention otherwise.
    """

    @checked
    def __init__(self, dim: Size, heads: Size, encoder: nn.Module, *, bias: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = DenseAttention(dim, heads, _fused, causal=True, bias=bias)
        self.cross = DenseAttention(dim, heads, _fused, bias=bias)

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *,
        context: Float[Tensor, "b m dim"], context_padding: KeyPadding = None,
    ) -> Tokens:  # fmt: skip
        source = context + self.encoder(context, context_padding)
        x = x + self.decoder(x, padding)
        return x + self.cross(x, context=source, context_padding=context_padding)


def _fused(q: Tensor, k: Tensor, v: Tensor, *, mask: Pattern) -> Tensor:
    allowed = patterns.dense_of(mask, q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
