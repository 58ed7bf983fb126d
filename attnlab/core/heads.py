r"""Projections and heads, once for the whole shelf.

$$q = x W_Q,\quad k = c\,W_K,\quad v = c\,W_V,\qquad y = \mathrm{concat}_h(o_h)\,W_O$$

x is the sequence that asks, c the one that is looked at (x itself unless a context is given). With
fewer key/value heads than query heads (g < h), query head a uses key/value head ⌊a g / h⌋:
consecutive query heads share one (Ainslie et al. 2023, section 2.2); g = 1 is multi-query attention
(Shazeer 2019).
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.options import Size
from attnlab.core.positions import Bias, DistanceBias, PositionScheme, Rotation, positions_of
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Context,
    GroupKeys,
    GroupValues,
    KeyPadding,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    autocasts,
    checked,
)


class Heads(nn.Module):
    """Owns the query, key, value and output projections of one attention layer.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. Parameters without biases:
    dim·h·d + dim·g·d + dim·g·e + h·e·dim. With ``queries=False`` there are neither queries nor
    keys, for layers whose weights do not come from comparing: dim·g·e + h·e·dim. ``linear`` makes
    the projections, as ``linear(dim, out, bias=…)``.

    ``positions`` turns queries and keys (a ``Rotation``) or is asked for ``bias``.
    """

    values_called = True
    """Whether values are what ``value`` gives when it is called, so that others can be put in their
    place; False where a form multiplies with its weight."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, head_dim: Size | None = None, value_dim: Size | None = None,
        bias: bool = False, queries: bool = True, positions: PositionScheme | None = None,
        linear: Callable[..., Any] = nn.Linear,
    ) -> None:  # fmt: skip
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        _refuse_remainders(dim, heads, kv_heads, head_dim)
        self.dim, self.heads, self.kv_heads = dim, heads, kv_heads
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        if queries:
            self.query = linear(dim, heads * self.head_dim, bias=bias)
            self.key = linear(dim, kv_heads * self.head_dim, bias=bias)
        self.value = linear(dim, kv_heads * self.value_dim, bias=bias)
        self.output = linear(heads * self.value_dim, dim, bias=bias)
        self.positions = positions

    @checked
    def project(
        self, x: Tokens, context: Context = None, *, padding: KeyPadding = None, start: int = 0,
        at: Int[Tensor, "b n"] | None = None,
    ) -> tuple[Queries, GroupKeys, GroupValues]:  # fmt: skip
        """Queries from ``x``; keys and values from ``context``, or from ``x`` itself.

        What the tokens hold that ``padding`` masks reaches nobody (``zero_nonfinite_padding``).
        ``start`` is the position of the first token, for a rotation; ``at`` those of all.
        """
        q, k, v = self.projected(x, context, padding=padding, start=start, at=at)
        return note("queries", q), note("keys", k), note("values", v)

    def projected(
        self, x: Tensor, context: Tensor | None = None, *, padding: Tensor | None = None,
        start: int = 0, at: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """What ``project`` gives, not noted."""
        if not hasattr(self, "query"):
            raise ValueError("these heads were built with queries=False: they have values alone")
        self.check_input(x, "x")
        if context is not None and self.positions is not None:
            raise ValueError(
                "a layer with positions has no cross-attention: the tokens of a context stand at "
                "positions of another sequence"
            )
        if context is None:
            x = context = zero_nonfinite_padding(x, padding)
        else:
            self.check_input(context, "context")
            context = zero_nonfinite_padding(context, padding)
        q = self.split(self.query(x), self.head_dim)
        k = self.split(self.key(context), self.head_dim)
        q, k = self.compared(q, k)
        v = self.values(context)
        if isinstance(self.positions, Rotation):
            if at is None:
                at = positions_of(x.shape[1], x.device, padding=padding, start=start)
            q, k = self.positions(q, k, at)
        return q, k, v

    def compared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys before they are turned, for a subclass to normalise."""
        return q, k

    def bias(
        self, n: int, m: int, padding: Tensor | None = None, *, at: Tensor | None = None
    ) -> Bias:
        """What is added to the scores of the last n of m positions; None without biases.

        Under a ``padding`` (b, m) distances count valid tokens only; ``at`` (b, m) are the
        positions, if they are not one after the other.
        """
        if not isinstance(self.positions, DistanceBias):
            return None
        if padding is None and at is None:
            return self.positions.in_layer(n, m, self.value.weight.device)
        if at is None:
            assert padding is not None
            at = positions_of(m, padding.device, padding=padding)
        found: Tensor = self.positions(at[:, m - n :], at)
        return found

    @checked
    def values(self, x: Float[Tensor, "b m dim"]) -> GroupValues:
        """The values alone. Not noted: whoever has other queries and keys notes all three."""
        self.check_input(x, "x")
        return self.split(self.value(x), self.value_dim)

    @checked
    def merge(self, out: Outputs) -> Tokens:
        """Put the heads side by side and project them back to ``dim``."""
        return self.output(self.join(out))

    def split(self, x: Tensor, width: int) -> Tensor:
        """(b, n, h·width) → (b, h, n, width): the heads, one after the other."""
        return x.unflatten(-1, (-1, width)).transpose(1, 2)

    def join(self, out: Tensor) -> Tensor:
        """(b, h, n, width) → (b, n, h·width)."""
        return out.transpose(1, 2).flatten(-2)

    def check_positions(self, *, causal: bool) -> None:
        """Raise a ValueError unless the position scheme, if there is one, suits these heads."""
        if self.positions is not None:
            self.positions.check_layer(self.heads, self.head_dim, causal=causal)

    def refuse_ahead(self) -> None:
        """A ValueError for a position scheme that is for the past alone."""
        if self.positions is not None and self.positions.needs_causal:
            raise ValueError(
                f"the objective shows tokens what comes after them, and {self.positions} is for "
                f"the past alone: {self.positions.needs_causal}"
            )

    @staticmethod
    def refuse_step(causal: bool) -> None:
        """A ValueError for a layer that cannot decode, because it is not causal."""
        if not causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")

    def check_input(self, x: Tensor, name: str) -> None:
        """A ValueError if ``x`` has not the width, the device or the dtype of this layer."""
        check_input(x, name, self.dim, self.value.weight)


class Channels(Heads):
    """Heads of width one, of layers that move each of ``dim`` channels along the sequence alone; or
    ``dim`` heads that each move ``width`` channels.

    ``value`` makes what moves, (b, n, dim · width) of any input, and ``output`` takes what arrives,
    with whatever else it needs. ``lens.mixing_matrix`` finds the map between the two.
    """

    def __init__(self, dim: int, value: nn.Module, output: nn.Module, *, width: int = 1) -> None:
        parts = iter((value, output))
        super().__init__(dim * width, dim, queries=False, linear=lambda *_, bias: next(parts))


def check_input(x: Tensor, name: str, dim: int, weight: Tensor) -> None:
    """A ValueError if ``x`` has not width ``dim``, or the device or dtype of a layer's weights."""
    if x.shape[-1] != dim:
        raise ValueError(
            f"`{name}` has width {x.shape[-1]}, but this layer was built with dim={dim}"
        )
    home = weight.device
    if x.device != home:
        raise ValueError(
            f"`{name}` is on {x.device} but the layer's parameters are on {home}; "
            "move one of them with .to(device)"
        )
    own = weight.dtype
    if x.dtype != own and not autocasts(x.device):
        raise ValueError(
            f"`{name}` is {x.dtype} but the layer's parameters are {own}; "
            "convert one of them with .to(dtype)"
        )


def zero_nonfinite_padding(x: Tokens, padding: TokenPadding) -> Tokens:
    """``x`` with zeros for padded tokens, before anything is computed from them.

    A mask gives such a token the weight 0, but 0 · NaN is NaN, and so is 0 times what a large
    number overflows to: in the output and in the gradients of all others.
    """
    return x if padding is None else x.masked_fill(~padding[..., None], 0)


def queries_per_key_head(q: Tensor, k: Tensor) -> int:
    """h / g; a ValueError where g does not divide h."""
    h, g = q.shape[1], k.shape[1]
    if h % g:
        raise ValueError(
            f"{g} key/value heads do not divide {h} query heads: "
            "each key/value head serves equally many query heads"
        )
    return h // g


def regrouped(weight: Tensor, had: int, has: int) -> Tensor:
    """The rows of a projection to ``had`` heads of keys or values, for ``has`` of them.

    More heads: each is repeated for those that shared it. Fewer: the mean of those that come
    together, as Ainslie et al. 2023 (section 2.1) convert a trained model.
    """
    if has % had == 0:
        return weight.unflatten(0, (had, -1)).repeat_interleave(has // had, 0).flatten(0, 1)
    if had % has:
        return weight  # whose shape does not fit
    return weight.unflatten(0, (has, had // has, -1)).mean(1).flatten(0, 1)


def _refuse_remainders(dim: int, heads: int, kv_heads: int, head_dim: int | None) -> None:
    if head_dim is None and dim % heads:
        raise ValueError(
            f"heads={heads} does not divide dim={dim}: choose heads among the divisors of dim"
        )
    if heads % kv_heads:
        raise ValueError(
            f"kv_heads={kv_heads} does not divide heads={heads}: "
            "each key/value head serves equally many query heads"
        )
