r"""The layer of dense attention: projections, a mask, one form, and decoding with a cache.

What is compared with what is the page's own: ``attend(q, k, v, *, mask)`` is one of its forms.
"""

from collections.abc import Callable

from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.heads import Heads
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import Context, KeyPadding, NewTokens, TokenPadding, Tokens, checked


class DenseAttention(nn.Module):
    """Multi-head attention by the form ``attend``: (b, n, dim) → (b, n, dim).

    ``projections`` makes its heads, as ``projections(dim, heads, kv_heads=…, bias=…)``. Called with
    a ``context`` (b, m, dim) it is cross-attention. ``step`` decodes: it takes the next tokens and
    the keys and values of all before them, and gives what the parallel form gives at those
    positions.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, attend: Callable[..., Tensor], *,
        kv_heads: Size | None = None, causal: bool = False, bias: bool = False,
        projections: Callable[..., Heads] = Heads,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = projections(dim, heads, kv_heads=kv_heads, bias=bias)
        self.attend, self.causal = attend, causal

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *,
        context: Context = None, context_padding: KeyPadding = None,
    ) -> Tokens:  # fmt: skip
        mask = patterns.visible(self.causal, padding, context, context_padding)
        padding = padding if context is None else context_padding
        q, k, v = self.heads.project(x, context, padding=padding)
        note("mask", mask)
        return self.heads.merge(self.attend(q, k, v, mask=mask))

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)  # all, old and new
        out = self.attend(q, keys, values, mask=note("mask", patterns.causal()))
        return self.heads.merge(out), state
