r"""GLA: gated linear attention. The token says how much each channel of the key keeps.

Linear attention adds $k_t v_t^\top$ to a sum S and never forgets; retention lets all of it fade at
a rate that is fixed. Gated linear attention lets the token choose, for each of the d rows of S by
itself, how much of it is kept:

$$S_t = \mathrm{diag}(a_t)\, S_{t-1} + k_t v_t^\top,\qquad o_t = q_t S_t / \sqrt d,\qquad a_t =
\sigma(x_t W_1 W_2 + c)^{1 / \tau}$$

$W_1 W_2$ has the rank R = 16. The temperature τ = 16 divides the logarithm of the decay and keeps
it close to 1: at a sigmoid of 1/2 it is 0.958. Nothing is erased: a key that comes again gets the
sum of its values. With a = 1 it is linear attention without a denominator, with one constant per
head retention, with one number per token and head Mamba-2.

Given queries, keys and decays the output is linear in the values. With $g_i$ the sum of the log
decays up to token i,

$$M_{ij} = \frac{1}{\sqrt d} \sum_r q_{ir}\, e^{g_{ir} - g_{jr}}\, k_{jr},\qquad j \le i$$

As two factors, $(Q \odot e^g)(K \odot e^{-g})^\top$, this is one matrix product, but the second
factor overflows: float64 after 355 tokens whose log decay is -2. A chunk is therefore halved, and
its halves again: from a first half to a second a key decays to the end of its half, and from there
to the query. All exponents are at most 0, and each level is one product of matrices.

**HGRN2** (``rule="hgrn2"``) is the same recurrence with the key tied to the decay: a channel writes
as much as it forgets, $k_t = 1 - a_t$, so that each row of S is a running average of the values.

$$a_t = \ell + (1 - \ell)\, \sigma(x_t W_f),\qquad q_t = \mathrm{silu}(x_t W_q)$$

The lower bound ℓ (``low``) is 0 in the first layer of a model and rises with depth. GLA divides
each head by its root mean square and multiplies it by SiLU of another projection; HGRN2 divides all
heads together and has no gate. Neither has a convolution.

Cost: $4\, n h\, d e$ FLOPs token by token; by chunks of c tokens $n h\, (2 c\, (d + e) + 4 d e)$
and $n h\, d \log_2 c$ products of decays.

``naive``    one token after the other: fade, write, read.
``matrix``   the n × n map.
``chunked``  the map inside chunks, half by half; S from one chunk to the next.
             ``attnlab.core.chunks`` derives it.

The paper's letters: its α is our a, its C our c. HGRN2 calls the decay f and its bound γ.

Common mistakes: a temperature that divides the logits, and not the logarithm of the decay; a factor
$e^{-g}$; what a token writes faded by its own decay.

Readings. Both layers follow the code that the authors of GLA released (flash-linear-attention); the
papers' texts were not at hand.

Departures.
- queries and keys are as wide as values unless ``head_dim`` is given; in the authors' code
  half as wide
- HGRN2's bounds are learned in that code, one for each channel, and rise from layer to layer; here
  each layer is given one number
- padded tokens are skipped

Gives up. What faded cannot be read again, and what is alike is added up, not replaced.

Yang, Wang, Shen, Panda, Kim. Gated Linear Attention Transformers with Hardware-Efficient Training.
ICML 2024, arXiv:2312.06635. HGRN2: Qin, Yang, Sun, Shen, Li, Sun, Zhong. HGRN2: Gated
Linear RNNs with State Expansion. COLM 2024, arXiv:2404.07904.
"""

import math
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
    chunked_elements,
    chunked_flops,
)
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked


@dataclass(frozen=True, kw_only=True)
class GatedLinearOptions(Options):
    """Where decays and keys come from, and how the rule is computed.

    ``rule``         "gla", or "hgrn2" with keys 1 - a
    ``temperature``  by which the logarithm of the sigmoid is divided (τ): 16, and 1 in HGRN2
    ``low``          the least decay before that (ℓ), at least 0 and below 1
    ``rank``         of the projection that GLA's decays come from (R): 16; HGRN2 has none
    ``chunk``        tokens per chunk of the chunked form (c)
    """

    rule: Literal["gla", "hgrn2"] = "gla"
    temperature: float | None = None
    low: float = 0.0
    rank: Size | None = None
    chunk: Size = 64

    def check(self) -> None:
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(
                f"temperature={self.temperature} should be positive: log decays are divided by it"
            )
        if not 0 <= self.low < 1:
            raise ValueError(f"low={self.low} should be at least 0 and below 1: it bounds a decay")
        if self.rule == "hgrn2" and self.rank is not None:
            raise ValueError(
                f"rank={self.rank} is of GLA's decays: HGRN2 projects them at once, so leave rank "
                "out, or give rule='gla'"
            )


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, decay: PerChannel,
    *, options: GatedLinearOptions = GatedLinearOptions(),
) -> Outputs:  # fmt: skip
    """Fade, write and read, token by token; a comes from ``decay``."""
    q, k, log_a = ruled(q, k, decay, options)
    S, out = initial_state(k, v), []
    for qi, ki, vi, ai in zip(*(x.split(1, dim=2) for x in (q, k, v, log_a.exp())), strict=True):
        S = ai.mT * S + ki.mT @ vi
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def ruled(
    q: Queries, k: SelfKeys, decay: PerChannel, options: GatedLinearOptions
) -> tuple[Tensor, ...]:
    """Queries divided by √d, keys, and log a (b, h, n, d)."""
    q, log_a = q * q.shape[-1] ** -0.5, log_decays(decay, options)
    return note("queries", q), note("keys", k), note("decays", log_a)


def log_decays(logits: Tensor, options: GatedLinearOptions) -> Tensor:
    """log a, where nothing is rounded to 0 or 1 on the way."""
    log_a = F.logsigmoid(logits)
    if options.low:  # ℓ + (1 - ℓ) σ(x) = σ(x) + ℓ σ(-x)
        log_a = torch.logaddexp(log_a, math.log(options.low) + F.logsigmoid(-logits))
    temperature = options.temperature
    return log_a / ((16 if options.rule == "gla" else 1) if temperature is None else temperature)


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, decay: PerChannel,
    *, options: GatedLinearOptions = GatedLinearOptions(),
) -> Outputs:  # fmt: skip
    """The map of all values at once."""
    q, k, log_a = ruled(q, k, decay, options)
    return note("weights", chunks.products(q, k, log_a)) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, decay: PerChannel,
    *, options: GatedLinearOptions = GatedLinearOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next."""
    out, S = advance(q, k, v, decay, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, decay: PerChannel, S: Sums,
    options: GatedLinearOptions,
) -> tuple[Outputs, Sums]:  # fmt: skip
    """The outputs of the next tokens after the state ``S``, and the state after them."""
    q, k, log_a = ruled(q, k, decay, options)
    return chunks.advance(q, k, v, S, options.chunk, log_decay=log_a)


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class GatedLinear(MatrixMemory):
    """Multi-head gated linear attention: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. ``step`` decodes; its state is S of
    every head.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: GatedLinearOptions = GatedLinearOptions(), head_dim: Size | None = None,
        value_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=None, head_dim=head_dim, value_dim=value_dim)
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        values = heads * self.value_dim
        if options.rule == "hgrn2":
            self.set_output(HeadNorm(1, values, dim, epsilon=1e-5))
            return
        rank = 16 if options.rank is None else options.rank
        self.fade, self.decays = nn.Linear(dim, rank, bias=False), nn.Linear(rank, self.widths[0])
        gate = nn.Linear(dim, values, bias=False)
        self.set_output(HeadNorm(heads, self.value_dim, dim, gate=gate, epsilon=1e-5))

    def _taken(self, x: Tokens, inputs: Tensor, before: Tensor | None) -> tuple[Tensor, ...]:
        if self.options.rule == "gla":
            return super()._taken(x, inputs, before)
        q, f, v = self._projected(inputs, before)
        k = -torch.expm1(log_decays(upcast(f), self.options))
        return F.silu(q), k.to(f.dtype), v, f

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        return (self.heads.split(self.decays(self.fade(x)), self.head_dim),)

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v, decay = given
        return advance(q, k, v, decay, S, self.options)


# ---- card

n, h, d, e, c = letters("n h d e c")

CARD = Card(
    __doc__,
    name="gated_linear",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=GatedLinearOptions,
    letters={"c": "chunk"},
    time={
        "naive": 4 * h * n * d * e,
        "matrix": 2 * h * n**2 * (d + e),
        "chunked": h * n * chunked_flops(c, d, e, erase=False),
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * (2 * d + e + n),
        "chunked": h * n * chunked_elements(c, d, e, erase=False),
    },
    notes={
        "naive": ("queries", "keys", "decays", "state"),
        "matrix": ("queries", "keys", "decays", "weights"),
        "chunked": ("queries", "keys", "decays", "state"),
    },
    variants=({"chunk": 3, "rule": "hgrn2", "low": 0.25}, {"chunk": 5, "rank": 2}),
    build=GatedLinear,
    aliases=("gla", "gated_linear_attention"),
)
