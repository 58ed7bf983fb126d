r"""RWKV-7: a delta rule whose erasure has a rate for each channel and a direction of its own.

The delta rules erase along the key that they write. RWKV-7 separates the two: a token takes out
what a direction $\hat\kappa_t$ reads of the state, with a rate $a_t$ between 0 and 1 for each
channel, lets each channel fade by $w_t$, and writes its value along another key:

$$S_t = \big(\mathrm{diag}(w_t) - (a_t \odot \hat\kappa_t)^\top \hat\kappa_t\big)\, S_{t-1} +
\tilde k_t^\top v_t,\qquad o_t = r_t S_t$$

$$w = e^{-\sigma(\omega) / \sqrt e},\quad a = \sigma(\alpha),\quad \hat\kappa = \mathrm{unit}(k
\odot \xi),\quad \tilde k = k \odot (1 + (a - 1) \odot \eta)$$

The logits $\omega_t$ and $\alpha_t$ come from the token by maps of rank R; $\xi$ and $\eta$ are
learned, (h, d). A channel keeps between 0.545 and all of what it holds at each token. What is
erased is read before anything fades. The transition is a diagonal plus a matrix of rank 1, similar
to a symmetric one; its eigenvalues are real, between -0.455 and 1. With $w = 1$, $\hat\kappa = k$
and values times a it is DeltaNet, and with $a = 0$ gated linear attention.

The output is linear in the values. With $P(x, y)_{ij} = \sum_r x_{ir}\, e^{g_{ir} - g_{jr}}\,
y_{jr}$ for $j \le i$, where g are the sums of log w, and $\hat\kappa / w$, which reads before
fading,

$$M = P(r, \tilde k) - P(r, a \odot \hat\kappa)\, \big(I + \mathrm{stril}\, P(\hat\kappa / w, a
\odot \hat\kappa)\big)^{-1}\, \mathrm{stril}\, P(\hat\kappa / w, \tilde k)$$

Around the recurrence: each of six projections reads its own mixture of the token and the one before
(*token shift*), $x_i + \mu \odot (x_{i-1} - x_i)$; each head is normalised (mean and variance), a
bonus $(\sum r \odot \rho \odot \tilde k)\, v$ is added, and a gate of rank R multiplies it.

Cost: $8\, n h\, d e$ FLOPs token by token; by chunks of c about $n h\, (c\, (11 d + 7 e) + 6 d e)$.

``naive``    one token after the other: read, fade, erase, write.
``matrix``   the n × n map, by a triangular solve.
``chunked``  the map inside chunks; from one to the next the state, by the WY representation.

The paper's letters: its r is our q, its S our $S^\top$; ξ, η, ρ are ``key_scale``, ``key_mix``,
``bonus``.

Common mistakes: the erasure read after fading; $\hat\kappa$ from the key after $\eta$ changed it;
1e-5 in the norm (it is d times that); queries divided by $\sqrt d$.

Readings. The layer follows the released code. **RWKV-6** erases nothing, has decays without a lower
bound and reads before it writes, $o_t = r_t (S_{t-1} + \mathrm{diag}(u)\, k_t^\top v_t)$: with a =
0 it is our recurrence, read by the query of the next token.

Departures.
- values are not mixed with those of the first layer: a layer here is the released model's first one
- decay, rate and gate have one rank R; in the released code each has its own
- 1e-6 is added to the squared length of $\hat\kappa$; the released code divides by at least 1e-12
- padded tokens are skipped

Gives up. At most d values can be told apart in a head; what faded cannot be read again.

Peng et al. RWKV-7 "Goose" with Expressive Dynamic State Evolution. 2025, arXiv:2503.14456.
"""

import math
from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor, nn

from attnlab.core import chunks
from attnlab.core.card import Card, letters
from attnlab.core.chunks import Sums, initial_state
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.matrix_memory import MatrixMemory, PerChannel, unit
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked
from attnlab.mechanisms.recurrence.rwkv7.parts import (
    NormalisedHeads,
    PerHeadChannel,
    mixed_keys,
    to_the_token_before,
)


@dataclass(frozen=True, kw_only=True)
class RWKV7Options(Options):
    """The size of its small projections, and how the rule is computed.

    ``rank``   of the projections that decay, rate and gate come from (R)
    ``chunk``  tokens per chunk of the chunked form (c)
    """

    rank: Size = 32
    chunk: Size = 32


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, rate: PerChannel, decay: PerChannel,
    key_scale: PerHeadChannel, key_mix: PerHeadChannel,
) -> Outputs:  # fmt: skip
    """Fade, erase and write, token by token; a and w come from ``rate`` and ``decay``."""
    k, read, erased, log_w = ruled(k, rate, decay, key_scale, key_mix)
    S, out = initial_state(k, v), []
    for qi, ki, vi, ri, ei, wi in zip(
        *(x.split(1, dim=2) for x in (q, k, v, read, erased, log_w.exp())), strict=True
    ):
        S = wi.mT * S - ei.mT @ (ri @ S) + ki.mT @ vi
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def ruled(
    k: SelfKeys, rate: PerChannel, decay: PerChannel, key_scale: PerHeadChannel,
    key_mix: PerHeadChannel,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Keys k̃, directions κ̂, a ⊙ κ̂ and log w, (b, h, n, d) each."""
    a, log_w = torch.sigmoid(rate), -math.exp(-0.5) * torch.sigmoid(decay)
    read = note("directions", unit(k * key_scale[:, None]))
    keys = note("keys", mixed_keys(k, a, key_mix))
    return keys, read, note("rates", a) * read, note("decays", log_w)


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, rate: PerChannel, decay: PerChannel,
    key_scale: PerHeadChannel, key_mix: PerHeadChannel,
) -> Outputs:  # fmt: skip
    """The map of all values at once."""
    k, read, erased, log_w = ruled(k, rate, decay, key_scale, key_mix)
    pairs, _, _ = chunks.decayed(log_w)
    read = read * (-log_w).exp()  # of what has faded, as if it had not
    held = chunks.solve(pairs(read, erased), pairs(read, k).tril(-1))
    return note("weights", pairs(q, k) - pairs(q, erased) @ held) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, rate: PerChannel, decay: PerChannel,
    key_scale: PerHeadChannel, key_mix: PerHeadChannel,
    *, options: RWKV7Options = RWKV7Options(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next."""
    out, S = advance(q, k, v, rate, decay, key_scale, key_mix, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, rate: PerChannel, decay: PerChannel,
    key_scale: PerHeadChannel, key_mix: PerHeadChannel, S: Sums, options: RWKV7Options,
) -> tuple[Outputs, Sums]:  # fmt: skip
    """The outputs of the next tokens after the state ``S``, and the state after them.

    ``held`` is what the directions of a chunk read: of values written in it, and of the state.
    """
    n, c = q.shape[2], min(options.chunk, q.shape[2])
    given = (q, v, *ruled(k, rate, decay, key_scale, key_mix))
    q, v, k, read, erased, log_w = (chunks.cut(x, c) for x in given)
    pairs, since, until = chunks.decayed(log_w)
    read = read * (-log_w).exp()
    right = torch.cat((pairs(read, k).tril(-1) @ v, since * read), dim=-1)
    held = chunks.solve(pairs(read, erased), right)
    near, far = (pairs(q, erased) @ held).split((v.shape[-1], k.shape[-1]), dim=-1)
    lost = (until * erased).mT @ held
    U, W = lost.split((v.shape[-1], k.shape[-1]), dim=-1)
    kept = torch.diag_embed(since[..., -1, :]) - W
    before, S = chunks.handed_on(kept, (until * k).mT @ v - U, S)
    out = pairs(q, k) @ v - near + (since * q - far) @ before
    return out.flatten(2, 3)[:, :, :n], S


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class RWKV7(MatrixMemory):
    """Time mixing of RWKV-7: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``step`` decodes; its state is S of every head, and the last token. ``shifts``: μ of queries,
    keys, values, rates, decays and gate.
    """

    reach, fused = 1, False

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: RWKV7Options = RWKV7Options(), head_dim: Size | None = None,
        value_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=None, head_dim=head_dim, value_dim=value_dim)
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        (keys, _, values), rank, d = self.widths, options.rank, self.head_dim
        self.query, self.key = (nn.Linear(dim, keys, bias=False) for _ in range(2))
        self.value = nn.Linear(dim, values, bias=False)
        place = torch.linspace(0, 1, dim)
        self.shifts = nn.Parameter(1 - place ** torch.linspace(0.2, 0.9, 6)[:, None])
        rate, decay = (nn.Linear(rank, keys) for _ in range(2))
        with torch.no_grad():  # half is left after some 450 tokens, or after 1
            rate.bias.zero_()
            decay.bias.copy_(torch.linspace(-6, 3, keys))
        low = [nn.Linear(dim, rank, bias=False) for _ in range(3)]
        self.rates = nn.Sequential(low[0], rate)
        self.decays = nn.Sequential(low[1], nn.Tanh(), decay)
        self.gate = nn.Sequential(low[2], nn.Sigmoid(), nn.Linear(rank, values, bias=False))
        self.key_scale = nn.Parameter(torch.full((heads, d), 0.85))
        self.key_mix = nn.Parameter(torch.ones(heads, d))
        self.bonus = nn.Parameter(torch.zeros(heads, d))
        self.set_output(NormalisedHeads(heads, self.value_dim, dim))

    def _carried(self, x: Tokens) -> Tensor:
        return x

    def _taken(self, x: Tokens, inputs: Tensor, before: Tensor | None) -> tuple[Tensor, ...]:
        change = to_the_token_before(inputs, before)
        mixed = [x + mu * change for mu in self.shifts[:5]]
        makes = (self.query, self.key, self.rates, self.decays)
        keys = (make(each) for make, each in zip(makes, (*mixed[:2], *mixed[3:]), strict=True))
        q, k, rate, decay = (self.heads.split(each, self.head_dim) for each in keys)
        v = self.heads.split(self.heads.value(self.value(mixed[2])), self.value_dim)
        return q, k, v, rate, decay, self.key_scale, self.key_mix

    def _output(self, out: Tensor, x: Tokens, before: Tensor | None, *given: Tensor) -> Tokens:
        q, k, v, rate, _, _, key_mix = map(upcast, given)
        k = mixed_keys(k, torch.sigmoid(rate), key_mix)
        bonus = (q * k * upcast(self.bonus)[:, None]).sum(dim=-1, keepdim=True) * v
        gate = self.gate(x + self.shifts[5] * to_the_token_before(x, before))
        return self.heads.output(self.heads.join(out), self.heads.join(bonus), gate)

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v, rate, decay, key_scale, key_mix = given
        return advance(q, k, v, rate, decay, key_scale, key_mix, S, self.options)


# ---- card

n, h, d, e, c = letters("n h d e c")

CARD = Card(
    __doc__,
    name="rwkv7",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=RWKV7Options,
    letters={"c": "chunk"},
    time={
        "naive": 8 * h * n * d * e,
        "matrix": h * n**2 * (8 * d + 2 * e + 3 * n),
        "chunked": h * n * (c * (11 * d + 7 * e) + 6 * d * e + 2 * d**2)
        + 2 * h * n * d**2 * (d + 2 * e) / c,
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * (2 * d + e + n),
        "chunked": h * n * (2 * d + e + c + d * (d + e) / c),
    },
    notes={
        "naive": ("keys", "directions", "rates", "decays", "state"),
        "matrix": ("keys", "directions", "rates", "decays", "weights"),
        "chunked": ("keys", "directions", "rates", "decays", "state"),
    },
    variants=({"chunk": 3, "rank": 2}, {"chunk": 5}),
    build=RWKV7,
    aliases=("rwkv_7", "goose"),
)
