r"""RWKV-4: a softmax whose scores need no query, so that two sums carry the whole past.

In attention each query weighs the past anew, so that all keys and values have to be kept. RWKV-4
gives every token one key and one value per channel, and lets the weight of a token depend on its
key and on how long ago it was, whoever asks. In each channel:

$$wkv_i = \frac{\sum_{j < i} e^{k_j - (i - 1 - j)\, w}\, v_j + e^{k_i + u}\, v_i}{\sum_{j < i}
e^{k_j - (i - 1 - j)\, w} + e^{k_i + u}},\qquad y = (\sigma(r) \odot wkv)\, W_O$$

The decay $w > 0$ and the bonus $u$ of the newest token are learned, one of each per channel. The
receptance $\sigma(r)$ decides how much of the result a token lets through. The token before the
newest has not decayed yet, and the newest has the bonus in the place of a decay. The weights of a
channel are positive and sum to one, as a softmax's do. Both sums follow from those of the token
before, $S_{i + 1} = e^{-w} S_i + e^{k_i} v_i$: a recurrent network whose state does not grow.

Before r, k and v are projected, each token is mixed with the one before it (*token shift*):
$r = (\mu_r \odot x_i + (1 - \mu_r) \odot x_{i-1})\, W_r$, and k, v alike, with $x_{-1} = 0$.
``ChannelMixing`` is the paper's feed-forward layer, with a token shift as well:

$$y = \sigma(r') \odot \max(k', 0)^2\, W_V$$

Cost: $34\, n\, dim$ elementary operations, an exponential counted as one, and no n × n tensor.

``naive``      the equation: n × n weights per channel, by a softmax of the exponents.
``recurrent``  the two sums, one token at a time. Exponents may be large, so both sums are kept
               divided by $e^{m}$, m the largest exponent so far: no number overflows.
``chunked``    the same, with c = √n tokens per chunk (``chunk`` at most): first the sums of every
               chunk alone, all chunks together; then the sums before each chunk, in rounds that
               add to those of each chunk what 1, 2, 4 … chunks before it have gathered; then the
               outputs, all chunks together. 2c + log₂(n / c) steps in place of n.

The paper's letters are ours, but for its T, our n, and its d, our dim.

Common mistakes: a decay at the token before the newest (the exponent there is k alone); u added to
a decay at the newest token; a running maximum that is forgotten between two chunks; a gradient
through the maximum (it cancels, so it is left out).

Departures.
- initial values are those of the first layer, in every layer. The released code gives them to the
  first of many layers: decay and shift from slow and old in the first channel to fast and new in
  the last.
- padded tokens are skipped. Neither the decay nor the shift counts them.

Gives up. No query: how much a token counts does not depend on who reads it.

Peng et al. RWKV: Reinventing RNNs for the Transformer Era. Findings of EMNLP 2023,
arXiv:2305.13048, section 3; running maximum: appendix D.
"""

import math
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.carried import reset_rows
from attnlab.core.forms import form, upcasting
from attnlab.core.heads import Heads, check_input
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked
from attnlab.mechanisms.recurrence.rwkv.channel_mixing import (
    ChannelMixing,
    PerChannel,
    shifted,
    token_before,
)
from attnlab.mechanisms.recurrence.rwkv.sums import Sums, accumulated, read_in, steps

__all__ = [
    "CARD", "CHUNK", "FORMS", "RWKV", "ChannelMixing", "State", "Sums", "advance", "chunked",
    "initial_state", "naive", "recurrent",
]  # fmt: skip

CHUNK = 64


# ---- naive


@form
def naive(k: Tokens, v: Tokens, decay: PerChannel, bonus: PerChannel) -> Tokens:
    """The weights of each channel, (b, dim, n, n), as a softmax of their exponents (section 3).

    ``decay`` is log w, as the released code has it: w is positive whatever is learned.
    """
    keys, w, u = k.mT, _rate(decay)[:, None, None], bonus[:, None]
    i = torch.arange(k.shape[1], device=k.device)
    past = keys[:, :, None] - (i[:, None] - 1 - i).clamp(min=0) * w
    exponents = torch.where(i == i[:, None], (keys + u)[:, :, None], past)
    exponents = exponents.masked_fill(i > i[:, None], -torch.inf)
    weights = note("weights", exponents.softmax(dim=-1))
    return torch.einsum("bdij,bjd->bid", weights, v)


def _rate(decay: PerChannel) -> PerChannel:
    """w = e^decay; at most e^80, where nothing is left after one token, as e^89 is infinite in
    float32 and 0 · ∞ is NaN."""
    return decay.clamp(max=80).exp()


# ---- recurrent


@form
def recurrent(k: Tokens, v: Tokens, decay: PerChannel, bonus: PerChannel) -> Tokens:
    """The two sums, token by token (appendix D)."""
    out, sums = steps(initial_state(k), k, v, _rate(decay), bonus)
    note("state", sums)
    return out


def initial_state(k: Float[Tensor, "... n dim"]) -> Sums:
    """The sums before the first token."""
    zeros = upcast(k).new_zeros(*k.shape[:-2], k.shape[-1])
    return Sums(zeros, zeros, torch.full_like(zeros, -torch.inf))


# ---- chunked


@form
def chunked(
    k: Tokens, v: Tokens, decay: PerChannel, bonus: PerChannel, *, chunk: Size = CHUNK
) -> Tokens:
    """All chunks at once, from the sums before each of them."""
    out, sums = advance(k, v, initial_state(k), decay, bonus, chunk)
    note("state", sums)
    return out


@upcasting
def advance(
    k: Tokens, v: Tokens, past: Sums, decay: PerChannel, bonus: PerChannel, chunk: int
) -> tuple[Tokens, Sums]:
    """The outputs of the next tokens after those of ``past``, and the sums after them."""
    c = min(chunk, math.isqrt(k.shape[1]))
    whole = k.shape[1] - k.shape[1] % c
    w, u = _rate(decay), bonus
    keys, values = (x[:, :whole].unflatten(1, (-1, c)) for x in (k, v))
    alone = initial_state(keys)
    for key, value in zip(keys.unbind(2), values.unbind(2), strict=True):
        alone = read_in(alone, key, value, w)
    first = Sums(*(torch.cat((x[:, None], y), dim=1) for x, y in zip(past, alone, strict=True)))
    sums = accumulated(first, c * w)
    starts = Sums(*(x[:, :-1] for x in sums))
    past = Sums(*(x[:, -1].clone() for x in sums))  # a view would keep all of them
    out, _ = steps(starts, keys, values, w, u)
    if whole == k.shape[1]:
        return out.flatten(1, 2), past
    last, past = steps(past, k[:, whole:], v[:, whole:], w, u)
    return torch.cat((out.flatten(1, 2), last), dim=1), past


FORMS = {"naive": naive, "recurrent": recurrent, "chunked": chunked}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: 4 · dim numbers per sequence at any length."""

    token: Float[Tensor, "b dim"]  # the last of them, for the token shift
    values: Float[Tensor, "b dim"]
    weights: Float[Tensor, "b dim"]
    largest: Float[Tensor, "b dim"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """As at the beginning in those sequences whose document has ``ended``."""
        return reset_rows(self, ended, largest=-torch.inf)


class RWKV(nn.Module):
    """Time mixing: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``decay`` (log w), ``bonus`` (u) and the three shifts μ are learned, (dim,) each. Every channel
    is a head of width one for ``lens.mixing_matrix``: row i of its map is σ(r_i) times the weights.
    """

    @checked
    def __init__(
        self, dim: Size, *,
        form: Literal["naive", "recurrent", "chunked"] = "chunked", chunk: Size = CHUNK,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.form, self.chunk = dim, form, chunk
        self.heads = Heads(dim, dim, queries=False)
        self.key, self.receptance = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        channel = torch.arange(dim)
        self.decay = nn.Parameter(8 * (channel / max(dim - 1, 1)) ** 0.7 - 5)
        self.bonus = nn.Parameter(math.log(0.3) + 0.5 * ((channel + 1) % 3 - 1))
        self.shift_key, self.shift_value = (nn.Parameter(channel / dim) for _ in range(2))
        self.shift_receptance = nn.Parameter((channel / dim) ** 0.5)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, self.key.weight)
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        gate, k, v = self._projected(x, torch.zeros_like(x[:, 0]))
        given = {"chunk": self.chunk} if self.form == "chunked" else {}
        out = FORMS[self.form](k, v, self.decay, self.bonus, **given)
        return self.heads.output(gate * out)

    def _projected(self, x: Tokens, last: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = token_before(x, last)
        gate = torch.sigmoid(self.receptance(shifted(x, before, self.shift_receptance)))
        k = self.key(shifted(x, before, self.shift_key))
        v = self.heads.value(shifted(x, before, self.shift_value))
        return note("gate", gate), k, v

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.key.weight)
        begin = State(torch.zeros_like(x[:, 0]), *initial_state(x))
        if state is None:
            state = begin
        check_state(state, begin)
        gate, k, v = self._projected(x, state.token)
        past = Sums(*state[1:])
        out, sums = advance(k, v, past, self.decay, self.bonus, self.chunk)
        return self.heads.output(gate * out), note("state", State(x[:, -1].clone(), *sums))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, form={self.form!r}, chunk={self.chunk}"


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="rwkv",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its sums hold what was read before",
    time={"naive": 2 * n**2 * dim, "recurrent": 28 * n * dim, "chunked": 42 * n * dim},
    memory={"naive": n**2 * dim, "recurrent": n * dim, "chunked": n * dim},
    launches={"recurrent": n, "chunked": sympy.sqrt(n)},
    notes={"naive": ("weights",), "recurrent": ("state",), "chunked": ("state",)},
    variants=({"chunk": 3},),
    build=RWKV,
    aliases=("rwkv4", "wkv"),
)
