r"""Gated DeltaNet: the delta rule, and a gate by which a token lets all of the past fade.

DeltaNet erases one association at a time, along the new key; to forget everything it would need d
tokens. Mamba-2 lets everything fade alike and cannot erase one thing. Gated DeltaNet does both: the
state is multiplied by a number $a_t$ between 0 and 1 that the token chooses, and what is erased is
what the new key reads of the state that has faded already:

$$S' = a_t\, S_{t-1},\qquad S_t = S' + b_t\, k_t \big(v_t - k_t S'\big)^\top,\qquad o_t = q_t S_t$$

$$a_t = \exp\!\big(-e^{A}\, \mathrm{softplus}(x_t w_a + c)\big),\qquad b_t = \sigma(x_t w_b)$$

Queries and keys are of unit length (rows), and $q$ is divided by $\sqrt d$. With a = 1 it is
DeltaNet. With b = 0 the state fades and nothing is written; with b = 1 the new value is read back
exactly, whatever a is. The transition $a\, (I - b\, k k^\top)$ has the eigenvalues a and $a (1 -
b)$: as a is a number the order of fading and erasing does not matter for S, but it does for what is
subtracted.

Given queries, keys, steps and decays the output is linear in the values. With $D_{ij} = \prod_{j <
s \le i} a_s$,

$$M = \big(\mathrm{tril}(Q K^\top) \odot D\big)\, \big(I + \mathrm{stril}(\mathrm{diag}(b)\, K
K^\top) \odot D\big)^{-1} \mathrm{diag}(b)$$

Two relatives are this rule. **Comba** (Hu et al., 2025) erases by $p = \lambda k$ and reads by
$q - D p$: steps λ b and values v / λ. **Titans** (Behrouz et al., 2025), with forgetting α and a
gradient step of size θ but no momentum, has a = 1 - α, b = 2 θ / (1 - α) and values (1 - α) v.

Around the recurrence: queries, keys and values pass a causal convolution of p tokens and SiLU; each
head is divided by its root mean square and multiplied by SiLU of a second projection. This is the
layer that alternates with attention in Qwen3-Next, three to one.

Cost: $6\, n h\, d e$ FLOPs token by token; by chunks of c tokens $n h\, (c\, (7 d + 3 e) + 4 d e +
2 d^2 + 2 d^2 (d + 2 e) / c)$, the last term for handing on the state in √(n / c) steps.

``naive``    one token after the other: fade, read, erase, write, read.
``matrix``   the n × n map, by a triangular solve.
``chunked``  the map inside chunks; from one chunk to the next the state, by the WY representation
             of a product of transitions. ``attnlab.core.chunks`` derives it.

The paper's letters: its S is our $S^\top$ (it writes columns), α our a, β our b, its C our c.

Common mistakes: the erasure measured on the state before it fades; the norm after the gate, or the
gate before the norm, as Mamba-2 has it; heads of values that share a key repeated as a whole (0, 1,
0, 1) in place of each by itself (0, 0, 1, 1).

Departures.
- the projections of queries, keys and values lie one after the other, those of the released
  Qwen3-Next are interleaved by heads. The layer is the same after a permutation of the rows.
- 1e-6 is added to the squared lengths under the root, as in the released code
- padded tokens are skipped

Gives up. At most d values can be told apart in a head, and all of them fade alike.

Yang, Kautz, Hatamizadeh. Gated Delta Networks: Improving Mamba2 with Delta Rule. ICLR 2025,
arXiv:2412.06464, section 3.
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
class GatedDeltaNetOptions(Options):
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
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    *, options: GatedDeltaNetOptions = GatedDeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """Fade, erase and write, token by token (Yang et al., section 3.1)."""
    q, k, b, log_a = ruled(q, k, step, decay, log_A, options)
    S, out = initial_state(k, v), []
    for qi, ki, vi, bi, ai in zip(
        *(x.split(1, dim=2) for x in (q, k, v, b, log_a.exp())), strict=True
    ):
        faded = ai * S
        S = faded + bi * ki.mT @ (vi - ki @ faded)
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def ruled(
    q: Queries, k: SelfKeys, step: PerToken, decay: PerToken, log_A: PerHead,
    options: GatedDeltaNetOptions,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Queries and keys of unit length, the queries divided by √d; b and log a (b, h, n, 1)."""
    b = torch.sigmoid(step)[..., None] * (2 if options.negative else 1)
    log_a = (-log_A.exp()[:, None] * F.softplus(decay))[..., None]
    q, k = note("queries", unit(q) * q.shape[-1] ** -0.5), note("keys", unit(k))
    return q, k, note("steps", b), note("decays", log_a)


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    *, options: GatedDeltaNetOptions = GatedDeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """The map of all values at once (section 3.3, for one chunk of n tokens)."""
    q, k, b, log_a = ruled(q, k, step, decay, log_A, options)
    D = chunks.segments(log_a[..., 0]).exp()
    read, erased = (q @ k.mT) * D, (b * k @ k.mT) * D
    weights = torch.linalg.solve_triangular(
        erased, read, upper=False, left=False, unitriangular=True
    )
    return note("weights", weights * b.mT) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    *, options: GatedDeltaNetOptions = GatedDeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next (section 3.3)."""
    out, S = advance(q, k, v, step, decay, log_A, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, decay: PerToken, log_A: PerHead,
    S: Sums, options: GatedDeltaNetOptions,
) -> tuple[Outputs, Sums]:  # fmt: skip
    """The outputs of the next tokens after the state ``S``, and the state after them."""
    q, k, b, log_a = ruled(q, k, step, decay, log_A, options)
    return chunks.advance(q, k, v, S, options.chunk, log_decay=log_a, erase=b)


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class GatedDeltaNet(MatrixMemory):
    """Multi-head gated delta rule: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. Each query and key serves
    ``value_heads`` / ``heads`` consecutive heads of values, each with its own step and decay.
    ``step`` decodes; its state is S of every head of values, and the last inputs of the
    convolution.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: GatedDeltaNetOptions = GatedDeltaNetOptions(), head_dim: Size | None = None,
        value_dim: Size | None = None, value_heads: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, width=options.width, head_dim=head_dim, value_dim=value_dim,
            value_heads=value_heads,
        )  # fmt: skip
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        self.steps = nn.Linear(dim, self.value_heads, bias=False)
        self.decays = nn.Linear(dim, self.value_heads)
        self.decays.bias = decay_bias(self.value_heads)
        self.log_A = decay_rates(self.value_heads)
        gate = nn.Linear(dim, self.value_heads * self.value_dim, bias=False)
        self.set_output(HeadNorm(self.value_heads, self.value_dim, dim, gate=gate))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        return self.steps(x).mT, self.decays(x).mT, self.log_A

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v, step, decay, log_A = given
        return advance(q, k, v, step, decay, log_A, S, self.options)


# ---- card

n, h, d, e, c, p = letters("n h d e c p")
convolution = 2 * p * n * h * (2 * d + e)

CARD = Card(
    __doc__,
    name="gated_deltanet",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=GatedDeltaNetOptions,
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
    build=GatedDeltaNet,
    aliases=("gated_delta_net", "gdn"),
)
