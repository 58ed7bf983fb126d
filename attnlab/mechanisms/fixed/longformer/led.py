"""A layer of LED: Longformer reads the source, full attention writes."""

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import checked


class EncoderDecoder(nn.Module):
    """The attention of one layer of LED: (b, n, dim) and a context (b, m, dim) → (b, n, dim).

    The long source is read by Longformer; what is written sees all of its own past and all of the
    source, by full attention. Each part is added to its stream; norms and feed-forward layers are a
    model's. ``TinyTransformer(kind="encoder_decoder")`` stacks the same whole, if its ``attention``
    is a function that builds a Longformer for ``causal=False`` and full attention otherwise.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: str = "blocked",
        window: int = 512,
        dilation: int | Sequence[int] = 1,
        global_positions: Sequence[int] = (),
        bias: bool = False,
    ) -> None:
        # Not above: the page imports this file.
        from attnlab.mechanisms.fixed.longformer import LongformerAttention

        super().__init__()
        self.encoder = LongformerAttention(
            dim, heads, form=form, window=window, dilation=dilation,
            global_positions=global_positions, bias=bias,
        )  # fmt: skip
        self.decoder = Heads(dim, heads, bias=bias)
        self.cross = Heads(dim, heads, bias=bias)

    @checked
    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        context: Float[Tensor, "b m dim"],
        context_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        source = context + self.encoder(context, context_padding)
        x = x + _full(self.decoder, x, None, patterns.visible(True, padding))
        seen = patterns.visible(False, None, source, context_padding)
        return x + _full(self.cross, x, source, seen)


def _full(heads: Heads, x: Tensor, context: Tensor | None, seen: Pattern) -> Tensor:
    q, k, v = heads.project(x, context)
    allowed = patterns.as_mask(note("mask", seen), q.shape[2], k.shape[2], q.device, len(q))
    return heads.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed))
