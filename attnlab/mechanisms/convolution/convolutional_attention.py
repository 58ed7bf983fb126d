r"""Attention with temporal convolutions: queries and keys that are made of k tokens in a row.

The score of two tokens compares one token with one other. In a time series a single value says
little: 3 may lie on the way up or on the way down. Convolutional self-attention makes every query
and every key from the token and the k − 1 before it, so that scores compare shapes:

$$o_i = \sum_j \mathrm{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right) v_j,\qquad q_i =
\sum_{s=0}^{k-1} x_{i-s}\, W^Q_s,\qquad k_j = \sum_{s=0}^{k-1} x_{j-s}\, W^K_s$$

Values are made of single tokens. With k = 1 this is full attention. The convolutions look back
only, so that a causal layer stays causal; centred ones would show each token the next.

Cost: $2 h n m (d + e)$ FLOPs as for full attention, and $4\, n\, k\, dim^2$ for queries and keys.

``naive``   the sums, term by term, and all n × m scores.
``fused``   PyTorch's ``conv1d`` and ``scaled_dot_product_attention``.

The paper's letters: k is its k. Its sparse patterns are not part of this page.

Common mistakes: padding a convolution on both sides; a convolution over the channels in place of
the positions.

Departures.
- padded tokens count as zero in the convolutions. So do the positions before the first.

Gives up. Nothing but time: queries and keys cost k times as much.

Li, Jin, Xuan, Zhou, Chen, Wang, Yan. Enhancing the Locality and Breaking the Memory Bottleneck of
Transformer on Time Series Forecasting. NeurIPS 2019, arXiv:1907.00235, section 4.1.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.carried import check_carried
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.positions import Rotation, Turn
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import NewTokens, Outputs, SelfValues, TokenPadding, Tokens, checked
from attnlab.core.softmax import masked_softmax

Taps = Float[Tensor, "k dim h d"]  # W_0 … W_{k-1}: of the token itself, of the one before it, …


@dataclass(frozen=True, kw_only=True)
class ConvolutionalOptions(Options):
    """How many tokens make a query or a key.

    ``kernel``  k, the token itself and the k − 1 before it.
    """

    kernel: Size = 3


# ---- naive


@form
def naive(
    x: Tokens, queries: Taps, keys: Taps, v: SelfValues, *,
    causal: bool = False, padding: TokenPadding = None, turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """The sums of k terms, then all scores (Li et al., section 4.1)."""
    x = zero_nonfinite_padding(x, padding)
    q, k = _noted(_summed(x, queries), _summed(x, keys), turn)
    allowed = patterns.dense_of(patterns.visible(causal, padding), q, k)
    weights = note("weights", masked_softmax(q @ k.mT * q.shape[-1] ** -0.5, allowed))
    return weights @ v


def _summed(x: Tensor, W: Tensor) -> Tensor:
    """Σ_s x_{i-s} W_s, in heads."""
    n, sums = x.shape[1], torch.zeros_like(torch.einsum("bnx,xhd->bhnd", x, W[0]))
    for s, matrix in enumerate(W):
        earlier = F.pad(x, (0, 0, s, 0))[:, :n]
        sums = sums + torch.einsum("bnx,xhd->bhnd", earlier, matrix)
    return sums


def _noted(q: Tensor, k: Tensor, turn: Turn | None) -> tuple[Tensor, Tensor]:
    """Queries and keys as they are compared: turned, if there is a ``turn``."""
    if turn is not None:
        q, k = turn.queries(q), turn.keys(k)
    return note("queries", q), note("keys", k)


# ---- fused


@checked
def fused(
    x: Tokens, queries: Taps, keys: Taps, v: SelfValues, *,
    causal: bool = False, padding: TokenPadding = None, turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """PyTorch's convolution and attention."""
    x = zero_nonfinite_padding(x, padding)
    q, k = _noted(_convolved(x, queries), _convolved(x, keys), turn)
    mask = patterns.visible(causal, padding)
    return sdpa.attend(q, k, upcast(v), mask=mask, bias=None, scale=None).to(v.dtype)


def _convolved(x: Tensor, W: Tensor) -> Tensor:
    """The same sums by ``conv1d``, whose first weight is that of the earliest token."""
    k, _, h, d = W.shape
    channels = F.pad(upcast(x).mT, (k - 1, 0))
    out = F.conv1d(channels, upcast(W).flip(0).flatten(2).permute(2, 1, 0))
    return out.unflatten(1, (h, d)).mT.contiguous()  # as PyTorch's kernel wants them


FORMS = {"naive": naive, "fused": fused}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: all keys and values, and the last k − 1 tokens."""

    keys: Float[Tensor, "b h t d"]
    values: Float[Tensor, "b h t e"]
    inputs: Float[Tensor, "b r dim"]


class ConvolutionalAttention(Layer):
    """(b, n, dim) → (b, n, dim), with queries and keys of ``kernel`` tokens each."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused", bias: bool = False,
        options: ConvolutionalOptions = ConvolutionalOptions(), positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias, queries=False)
        self.positions = positions
        if positions is not None:
            positions.check_layer(heads, dim // heads, causal=causal)
        shape = (options.kernel, dim, heads, dim // heads)
        bound = (options.kernel * dim) ** -0.5
        drawn = (torch.empty(shape).uniform_(-bound, bound) for _ in range(2))
        self.queries, self.keys = map(nn.Parameter, drawn)
        self.causal, self.form, self.options = causal, form, options

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        x = zero_nonfinite_padding(x, padding)
        v = note("values", self.heads.values(x))
        note("mask", patterns.visible(self.causal, padding))
        run, turn = FORMS[self.form], Turn.of(self.positions, x, padding)
        out = run(x, self.queries, self.keys, v, causal=self.causal, padding=padding, turn=turn)
        return self.heads.merge(out)

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        v, cache, past = self.heads.values(x), None, x[:, :0]
        if state is not None:
            check_carried({"inputs": (state.inputs, (None, x.shape[-1]))}, len(x), x)
            cache, past = KeyValueCache(state.keys, state.values), state.inputs
        seen = torch.cat((past, x), dim=1)
        q, k = (_convolved(seen, W)[:, :, past.shape[1] :] for W in (self.queries, self.keys))
        if turn := Turn.of(self.positions, x, start=0 if cache is None else cache.length):
            q, k = turn.queries(q), turn.keys(k)
        cache = KeyValueCache.extended(cache, k.to(v.dtype), v)
        keys, values = note("keys", cache.keys), note("values", cache.values)
        mask = note("mask", patterns.causal())
        q = note("queries", q.to(v.dtype))
        out = sdpa.attend(q, keys, values, mask=mask, bias=None, scale=None)
        kept = seen[:, max(0, seen.shape[1] - self.options.kernel + 1) :].clone()
        return self.heads.merge(out), note("state", State(*cache, kept))


# ---- card

h, n, d, e, k, dim = letters("h n d e k dim")
COST = 2 * h * n**2 * (d + e) + 4 * n * k * dim**2

CARD = Card(
    __doc__,
    name="convolutional_attention",
    family="convolution",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=ConvolutionalOptions,
    letters={"k": "kernel"},
    time=COST,
    memory={"naive": h * n**2, "fused": h * n * (d + e) + k * n * dim},
    notes={"naive": ("queries", "keys", "weights"), "fused": ("queries", "keys")},
    variants=({"kernel": 1}, {"kernel": 4}),
    build=ConvolutionalAttention,
    aliases=("temporal_convolution",),
)
