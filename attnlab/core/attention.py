r"""The layer of dense attention: projections, a mask, one form, and decoding with a cache.

What is compared with what is the page's own. ``DenseAttention`` is given one of its forms,
``attend(q, k, v, *, mask)``; a page whose forms need more than that defines ``attend`` in a
subclass of ``SelfAttention``.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import Bias, PositionScheme
from attnlab.core.probe import note
from attnlab.core.shapes import Context, KeyPadding, NewTokens, TokenPadding, Tokens, checked
from attnlab.core.visibility import Visibility


class DenseAttention(Layer):
    """Multi-head attention by the form ``attend``: (b, n, dim) → (b, n, dim).

    ``projections`` makes its heads, as ``projections(dim, heads, kv_heads=…, bias=…,
    positions=…)``. Called with a ``context`` (b, m, dim) it is cross-attention. ``step`` decodes:
    it takes the next tokens and the keys and values of all before them, and gives what the parallel
    form gives at those positions. ``positions`` rotates queries and keys, or gives biases by
    distance.
    """

    one_softmax: ClassVar[bool] = True
    """Whether the weights of a head are one softmax of its queries times its keys, which may be
    capped before or multiplied afterwards."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, attend: Callable[..., Tensor], *,
        kv_heads: Size | None = None, causal: bool = False, bias: bool = False,
        positions: PositionScheme | None = None, projections: Callable[..., Heads] = Heads,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = projections(dim, heads, kv_heads=kv_heads, bias=bias, positions=positions)
        self.heads.check_positions(causal=causal)
        self.attend, self.causal = attend, causal

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *,
        context: Context = None, context_padding: KeyPadding = None,
        visibility: Visibility | None = None,
    ) -> Tokens:  # fmt: skip
        """What each token takes from the others: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n) is True at real tokens. For cross-attention ``context`` (b, m, dim) is
        what the keys and values are made of, with a padding of its own. A ``visibility`` says which
        token sees which, in the place of causal or not.
        """
        if visibility is not None:
            return self._seeing(x, padding, visibility)
        mask = patterns.visible(self.causal, padding, context, context_padding)
        padding = padding if context is None else context_padding
        q, k, v = self.heads.project(x, context, padding=padding)
        note("mask", mask)
        bias = self.heads.bias(q.shape[2], k.shape[2], padding)
        return self.heads.merge(self._attend(q, k, v, mask, bias))

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x, start=0 if state is None else state.length)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)  # all, old and new
        bias = self.heads.bias(q.shape[2], keys.shape[2])
        out = self._attend(q, keys, values, note("mask", patterns.causal()), bias)
        return self.heads.merge(out), state

    def _seeing(self, x: Tensor, padding: Tensor | None, visibility: Visibility) -> Tensor:
        """As ``forward``, where the visibility says which token sees which."""
        visibility.check_fits(x)
        self.heads.refuse_ahead()
        at = visibility.positions
        q, k, v = self.heads.project(x, padding=padding, at=at)
        mask = note("mask", visibility.mask(padding))
        bias = self.heads.bias(q.shape[2], k.shape[2], padding, at=at)
        return self.heads.merge(self._attend(q, k, v, mask, bias))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Bias) -> Tensor:
        if bias is None:  # forms that can take none have no such argument
            return self.attend(q, k, v, mask=mask)
        return self.attend(q, k, v, mask=mask, bias=bias)


class SelfAttention(Layer):
    """A sequence that attends to itself: (b, n, dim) → (b, n, dim). A subclass says how.

    ``step`` decodes as that of ``DenseAttention`` does. There is no cross-attention.
    """

    def __init__(
        self, dim: Size, heads: Size, *, causal: bool, bias: bool,
        positions: PositionScheme | None = None, projections: Callable[..., Heads] = Heads,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.causal = projections(dim, heads, bias=bias, positions=positions), causal
        self.heads.check_positions(causal=causal)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """The output (b, h, n, e) of queries that are the last n of m positions."""

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """What each token takes from the others: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n) is True at real tokens.
        """
        q, k, v = self.heads.project(x, padding=padding)
        note("mask", patterns.visible(self.causal, padding))
        return self.heads.merge(self.attend(q, k, v, padding))

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x, start=0 if state is None else state.length)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)
        note("mask", patterns.causal())
        return self.heads.merge(self.attend(q, keys, values)), state
