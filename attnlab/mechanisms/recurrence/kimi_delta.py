r"""Kimi Delta Attention: the delta rule with a decay of its own for each channel of the key.

Gated DeltaNet lets the whole state fade alike. Kimi Delta Attention gives each of the d rows of the
state a decay of its own, so that some channels keep what they hold for long while others forget.
The new key reads what has faded, the difference to the new value is written:

$$S' = \mathrm{diag}(a_t)\, S_{t-1},\qquad S_t = S' + b_t\, k_t \big(v_t - k_t S'\big)^\top,\qquad
o_t = q_t S_t$$

$$a_t = \exp\!\big(-e^{A}\, \mathrm{softplus}(x_t W_1 W_2 + c)\big),\qquad b_t = \sigma(x_t w_b)$$

Queries and keys are of unit length (rows), and $q$ is divided by $\sqrt d$; A is one number per
head, c one per channel, and $W_1 W_2$ has the rank d. With equal channels it is Gated DeltaNet,
with a = 1 DeltaNet. The transition $(I - b\, k k^\top)\, \mathrm{diag}(a)$ is not symmetric: the
order of fading and erasing matters here. It is a diagonal plus a matrix of rank 1.

Given queries, keys, steps and decays the output is linear in the values. With $g_i$ the sum of the
log decays up to token i,

$$M = P\, \big(I + \mathrm{stril}(\mathrm{diag}(b)\, L)\big)^{-1} \mathrm{diag}(b),\qquad P_{ij} =
\sum_r q_{ir}\, e^{g_{ir} - g_{jr}}\, k_{jr}\ (j \le i),\qquad L\ \text{likewise of}\ k,\ k$$

P cannot be computed as $(Q e^{g}) (K e^{-g})^\top$: the second factor overflows. A chunk is halved,
and its halves again: from a first half to a second a key decays to the end of its half, and from
there to the query. All exponents are at most 0, and each level is one product of matrices.

Around the recurrence: queries, keys and values pass a causal convolution of p tokens and SiLU; each
head is divided by its root mean square and multiplied by a sigmoid of a projection of rank d. Kimi
Linear alternates three such layers with one of attention without positions.

Cost: $6\, n h\, d e$ FLOPs token by token; by chunks of c tokens $n h\, (c\, (7 d + 3 e) + 4 d e +
2 d^2 + 2 d^2 (d + 2 e) / c)$ and $n h\, d \log_2 c$ products of decays.

``naive``    one token after the other: fade, read, erase, write, read.
``matrix``   the n × n map, by a triangular solve.
``chunked``  the map inside chunks; from one chunk to the next the state, by the WY representation
             of a product of transitions. ``attnlab.core.chunks`` derives it.

The paper's letters: its α is our a, β our b, its C our c.

Common mistakes: fading after the erasure; the decay's bias per head and its rate per channel (it is
the other way); SiLU as the gate of the output.

Departures.
- values have a width of their own if ``value_dim`` is given. In the paper it is d.
- 1e-6 is added to the squared lengths under the root, as in the released code
- padded tokens are skipped

Gives up. At most d values can be told apart in a head; what faded cannot be read again.

Kimi Team. Kimi Linear: An Expressive, Efficient Attention Architecture. 2025, arXiv:2510.26692,
sections 2 and 3.
"""

from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.core.card import Card, letters
from attnlab.core.chunks import Sums, initial_state
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.matrix_memory import (
    HeadNorm,
    MatrixMemory,
    PerChannel,
    PerHead,
    PerToken,
    chunked_elements,
    chunked_flops,
    decay_bias,
    decay_rates,
    unit,
)
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked


@dataclass(frozen=True, kw_only=True)
class KimiDeltaOptions(Options):
    """The step, and how the rule is computed.

    ``negative``  steps between 0 and 2 in place of 0 and 1
    ``width``     taps of the short convolution (p)
    ``chunk``     tokens per chunk of the chunked form (c)
    """

    negative: bool = False
    width: Size = 4
    chunk: Size = 64


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerChannel, log_A: PerHead,
    *, options: KimiDeltaOptions = KimiDeltaOptions(),
) -> Outputs:  # fmt: skip
    """Fade, erase and write, token by token (Kimi Team, section 3)."""
    q, k, b, log_a = ruled(q, k, step, decay, log_A, options)
    S, out = initial_state(k, v), []
    for qi, ki, vi, bi, ai in zip(
        *(x.split(1, dim=2) for x in (q, k, v, b, log_a.exp())), strict=True
    ):
        faded = ai.mT * S
        S = faded + bi * ki.mT @ (vi - ki @ faded)
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def ruled(
    q: Queries, k: SelfKeys, step: PerToken, decay: PerChannel, log_A: PerHead,
    options: KimiDeltaOptions,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Queries and keys of unit length, the queries divided by √d; b (b, h, n, 1); log a
    (b, h, n, d)."""
    b = torch.sigmoid(step)[..., None] * (2 if options.negative else 1)
    log_a = -log_A.exp()[:, None, None] * F.softplus(decay)
    q, k = note("queries", unit(q) * q.shape[-1] ** -0.5), note("keys", unit(k))
    return q, k, note("steps", b), note("decays", log_a)


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerChannel, log_A: PerHead,
    *, options: KimiDeltaOptions = KimiDeltaOptions(),
) -> Outputs:  # fmt: skip
    """The map of all values at once (section 3, for one chunk of n tokens)."""
    q, k, b, log_a = ruled(q, k, step, decay, log_A, options)
    read, erased = chunks.products(q, k, log_a), chunks.products(b * k, k, log_a)
    weights = torch.linalg.solve_triangular(
        erased, read, upper=False, left=False, unitriangular=True
    )
    return note("weights", weights * b.mT) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerChannel, log_A: PerHead,
    *, options: KimiDeltaOptions = KimiDeltaOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next (section 3)."""
    out, S = advance(q, k, v, step, decay, log_A, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerChannel, log_A: PerHead,
    S: Sums, options: KimiDeltaOptions,
) -> tuple[Outputs, Sums]:  # fmt: skip
    """The outputs of the next tokens after the state ``S``, and the state after them."""
    q, k, b, log_a = ruled(q, k, step, decay, log_A, options)
    return chunks.advance(q, k, v, S, options.chunk, log_decay=log_a, erase=b)


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class KimiDelta(MatrixMemory):
    """Multi-head delta rule, gated by channels: (b, n, dim) → (b, n, dim), causal; zeros at
    padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. ``step`` decodes; its state is S of
    every head, and the last inputs of the convolution.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: KimiDeltaOptions = KimiDeltaOptions(), head_dim: Size | None = None,
        value_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=options.width, head_dim=head_dim, value_dim=value_dim)
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        d, values = self.head_dim, heads * self.value_dim
        self.steps = nn.Linear(dim, heads, bias=False)
        self.fade, self.decays = nn.Linear(dim, d, bias=False), nn.Linear(d, heads * d)
        self.decays.bias = decay_bias(heads * d)
        self.log_A = decay_rates(heads)
        gate = nn.Sequential(nn.Linear(dim, d, bias=False), nn.Linear(d, values, bias=False))
        self.set_output(HeadNorm(heads, self.value_dim, dim, gate=gate, squash=torch.sigmoid))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        decay = self.heads.split(self.decays(self.fade(x)), self.head_dim)
        return self.steps(x).mT, decay, self.log_A

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v, step, decay, log_A = given
        return advance(q, k, v, step, decay, log_A, S, self.options)


# ---- card

n, h, d, e, c, p = letters("n h d e c p")
convolution = 2 * p * n * h * (2 * d + e)

CARD = Card(
    __doc__,
    name="kimi_delta",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=KimiDeltaOptions,
    letters={"c": "chunk", "p": "width"},
    time={
        "naive": 6 * h * n * d * e + convolution,
        "matrix": h * n**2 * (4 * d + 2 * e + n) + convolution,
        "chunked": h * n * chunked_flops(c, d, e, erase=True) + convolution,
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * (2 * d + e + n),
        "chunked": h * n * chunked_elements(c, d, e, erase=True),
    },
    notes={
        "naive": ("queries", "keys", "steps", "decays", "state"),
        "matrix": ("queries", "keys", "steps", "decays", "weights"),
        "chunked": ("queries", "keys", "steps", "decays", "state"),
    },
    variants=({"chunk": 3, "negative": True}, {"width": 1, "chunk": 5}),
    build=KimiDelta,
    aliases=("kimi_delta_attention", "kda"),
)
