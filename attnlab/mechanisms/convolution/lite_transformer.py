r"""Long-short range attention (Lite Transformer): half of the channels attend, half convolve.

Much of what attention does is local, and a convolution does that for less. The Lite Transformer
splits the channels of a layer in the middle. The first half goes through multi-head attention, the
second through a lightweight convolution of k neighbours, and both results are put side by side:

$$y = [\,\mathrm{softmax}(Q K^\top / \sqrt d)\, V\, W_O\; ;\; \mathrm{band}(w)\, U\, W'_O\,],\qquad
\mathrm{band}(w)_{ij} = \mathrm{softmax}(w)_{j - i + \lceil (k + 1) / 2 \rceil}$$

Q, K and V are projections of the first half of the channels, U is one of the second, and w is one
vector of k numbers per head. Every matrix has half the width of a full layer's, and scores are
computed for half of the channels. Nothing mixes the two halves here: the feed-forward layer that
follows does. The first half of the heads attends to the whole sequence; the map of each of the
others is a band of k diagonals.

Cost: $h n m (d + e)$ FLOPs for the scores of h / 2 heads, and $h\, n\, k\, e$ for the convolution.

``naive``   all weights as n × n matrices.
``fused``   PyTorch's ``scaled_dot_product_attention``, and one product for each tap.

The paper's letters: $d$ is our dim; its convolution has a kernel of our k.

Common mistakes: padding has to be masked after the projection U, whose bias would come back at
padded positions and reach real tokens (the released code masks before it).

Departures.
- no dropout of the weights
- both parts have equally many heads. ``heads`` is even for that.

Gives up. Half of the channels see a few neighbours only.

Wu, Liu, Lin, Lin, Han. Lite Transformer with Long-Short Range Attention. ICLR 2020,
arXiv:2004.11886, section 4.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import banded, patterns, sdpa
from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.carried import check_carried
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import (
    NewTokens,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax

Weights = Float[Tensor, "h k"]
Both = Float[Tensor, "b h2 n e"]  # the h heads of attention, then the h of the convolution


@dataclass(frozen=True, kw_only=True)
class LiteTransformerOptions(Options):
    """The convolution of the second half.

    ``kernel``  k, the neighbours that a token reads, itself among them.
    """

    kernel: Size = 7


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, u: SelfValues, weight: Weights, *,
    causal: bool = False, padding: TokenPadding = None,
) -> Both:  # fmt: skip
    """Attention of the first heads, the band of the others (Wu et al., section 4)."""
    b, _, n, d = q.shape
    allowed = patterns.dense_of(patterns.visible(causal, padding), q, k)
    weights = note("weights", masked_softmax(q @ k.mT * d**-0.5, allowed))
    taps = weight.softmax(dim=-1)[None, :, None].expand(b, -1, n, -1)
    band = note("band", banded.dense(taps, banded.left_taps(taps.shape[-1], causal=causal)))
    return torch.cat((weights @ v, band @ _visible_values(u, padding)), dim=1)


def _visible_values(u: SelfValues, padding: TokenPadding) -> SelfValues:
    return upcast(u) if padding is None else upcast(u) * padding[:, None, :, None]


# ---- fused


@checked
def fused(
    q: Queries, k: SelfKeys, v: SelfValues, u: SelfValues, weight: Weights, *,
    causal: bool = False, padding: TokenPadding = None,
) -> Both:  # fmt: skip
    """PyTorch's kernel beside one product for each tap."""
    mask = patterns.visible(causal, padding)
    attended = sdpa.attend(q, k, v, mask=mask, bias=None, scale=None)
    convolved = _convolved(weight, _visible_values(u, padding), causal)
    return torch.cat((attended, convolved.to(v.dtype)), dim=1)


def _convolved(weight: Weights, u: SelfValues, causal: bool) -> SelfValues:
    taps = note("taps", upcast(weight).softmax(dim=-1)[None, :, None])
    return banded.shifted(taps, u, banded.left_taps(weight.shape[-1], causal=causal))


FORMS = {"naive": naive, "fused": fused}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: all keys and values of attention, and the last
    k − 1 inputs of the convolution."""

    keys: Float[Tensor, "b h t d"]
    values: Float[Tensor, "b h t e"]
    inputs: Float[Tensor, "b h r e"]


class Halves(nn.Module):
    """A linear map of each half of the channels: (…, dim) → (…, out)."""

    def __init__(self, dim: int, out: int, *, bias: bool) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(dim // 2, out // 2, bias=bias) for _ in range(2))

    @property
    def weight(self) -> Tensor:
        """The weight of the first half: its device and dtype are the module's."""
        return self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((self.first(first), self.second(second)), dim=-1)


class LongShortAttention(Layer):
    """(b, n, dim) → (b, n, dim). Half of the ``heads`` attend, the others convolve."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused", bias: bool = False,
        options: LiteTransformerOptions = LiteTransformerOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias, queries=False, linear=Halves)
        if heads % 2:
            raise ValueError(
                f"heads={heads} is odd, but half of the heads attend and half convolve: choose an "
                "even number"
            )
        self.query, self.key = (nn.Linear(dim // 2, dim // 2, bias=bias) for _ in range(2))
        self.weight = nn.Parameter(torch.randn(heads // 2, options.kernel) * options.kernel**-0.5)
        self.causal, self.form, self.options = causal, form, options

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v, u = self._projected(zero_nonfinite_padding(x, padding))
        note("mask", patterns.visible(self.causal, padding))
        out = FORMS[self.form](q, k, v, u, self.weight, causal=self.causal, padding=padding)
        return self.heads.merge(out)

    def _projected(self, x: Tensor) -> tuple[Tensor, ...]:
        self.heads.check_input(x, "x")
        half = x[..., : x.shape[-1] // 2]
        q, k = (
            self.heads.split(part(half), self.heads.head_dim) for part in (self.query, self.key)
        )
        v, u = self.heads.values(x).chunk(2, dim=1)
        return note("queries", q), note("keys", k), note("values", v), u

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v, u = self._projected(x)
        cache, past = None, u[:, :, :0]
        if state is not None:
            shape = (u.shape[1], None, u.shape[3])
            check_carried({"inputs": (state.inputs, shape)}, len(u), u)
            cache, past = KeyValueCache(state.keys, state.values), state.inputs
        cache = KeyValueCache.extended(cache, k, v)
        seen = torch.cat((past, u), dim=2)
        causal = patterns.causal()
        attended = sdpa.attend(q, cache.keys, cache.values, mask=causal, bias=None, scale=None)
        convolved = _convolved(self.weight, upcast(seen), True)[:, :, past.shape[2] :].to(u.dtype)
        kept = seen[:, :, max(0, seen.shape[2] - self.options.kernel + 1) :].clone()
        out = self.heads.merge(torch.cat((attended, convolved), dim=1))
        return out, note("state", State(*cache, kept))


# ---- card

h, n, m, d, e, k = letters("h n m d e k")
BAND = h * n * k * e

CARD = Card(
    __doc__,
    name="lite_transformer",
    family="convolution",
    role="mix",
    forms=FORMS,
    causal="optional",
    options=LiteTransformerOptions,
    letters={"k": "kernel"},
    time={"naive": h * n * n * (d + 2 * e), "fused": h * n * n * (d + e) + BAND},
    memory={"naive": h * n**2, "fused": h * (n + k) * (d + e)},
    notes={"naive": ("weights", "band"), "fused": ("taps",)},
    variants=({"kernel": 4},),
    build=LongShortAttention,
    aliases=("lsra", "long_short_range_attention"),
    small_options={"kernel": 5},
)
