r"""DeltaNet: linear attention that erases what a key held before it writes.

Linear attention adds $k_t v_t^\top$ to a sum S and reads it with $q_t S$. A key that comes again
gets the sum of its two values, and keys that are alike disturb each other. DeltaNet first looks up
what S returns for the new key, and writes the difference only, by a step $b_t$ between 0 and 1 that
the token chooses:

$$S_t = S_{t-1} + b_t\, k_t \big(v_t - k_t S_{t-1}\big)^\top = (I - b_t k_t k_t^\top)\, S_{t-1} +
b_t k_t v_t^\top,\qquad o_t = q_t S_t$$

with queries and keys of unit length (rows; $q$ is then divided by $\sqrt d$). It is a step of
gradient descent of size $b_t$ on $\frac12 \lVert k_t S - v_t \rVert^2$. With $b_t = 1$ the new
value is read back exactly, and everything else that lay along $k_t$ is gone; with $b_t = 0$ nothing
happens. Orthonormal keys and b = 1 make S a dictionary in which a second write replaces the first.

The transition $I - b\, k k^\top$ has the eigenvalue 1 - b along the key and 1 across it. With
``negative=True`` steps go up to 2 and the eigenvalue down to -1, a reflection: such a layer can
count modulo 2, which no transition with positive eigenvalues can (Grazzi et al., 2024).

Given queries, keys and steps the output is linear in the values, by a lower triangular map whose
entries have either sign:

$$M = \mathrm{tril}(Q K^\top)\, \big(I + \mathrm{stril}(\mathrm{diag}(b)\, K K^\top)\big)^{-1}
\mathrm{diag}(b)$$

Two relatives are this rule. **DeltaProduct** (Siems et al., 2025) erases and writes with m keys for
each token and then reads: a run of m n tokens of which every m-th is read. The linear memory of
**Titans** (Behrouz et al., 2025) takes a step of size θ against the gradient of $\lVert k M - v
\rVert^2$: without momentum and forgetting it is this rule with b = 2 θ.

Around the recurrence: queries, keys and values pass a causal convolution of p tokens and SiLU, and
the output of each head is divided by its root mean square.

Cost: $6\, n h\, d e$ FLOPs token by token; by chunks of c tokens $n h\, (c\, (7 d + 3 e) + 4 d e +
2 d^2 + 2 d^2 (d + 2 e) / c)$, the last term for handing on the state in √(n / c) steps.

``naive``    one token after the other: read, erase, write, read.
``matrix``   the n × n map, by a triangular solve.
``chunked``  the map inside chunks; from one chunk to the next the state, by the WY representation
             of a product of transitions. ``attnlab.core.chunks`` derives it.
``triton``   the same with one kernel for all chunks of a head, which keeps the state; it needs a
             GPU (``attnlab.core.kernels``).

The paper's letters: its S is our $S^\top$ (it writes columns), β our b, its C our c.

Common mistakes: keys that are not of unit length: with $b \lVert k \rVert^2 > 2$ the state grows
without bound; $\sqrt d$ left out because there is a norm already; the erasure applied to the state
after the write.

Departures.
- 1e-6 is added to the squared lengths under the root, as in the released code
- padded tokens are skipped

Gives up. At most d values can be told apart in a head; a later one erases what is like it.

Yang, Wang, Zhang, Shen, Kim. Parallelizing Linear Transformers with the Delta Rule over Sequence
Length. NeurIPS 2024, arXiv:2406.06484, sections 2 and 3. The rule in a layer: Schlag, Irie,
Schmidhuber. Linear Transformers Are Secretly Fast Weight Programmers. ICML 2021, arXiv:2102.11174,
section 4.
"""

from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor, nn

from attnlab.core import chunks, kernels
from attnlab.core.card import Card, letters
from attnlab.core.chunks import Sums, initial_state
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.matrix_memory import (
    HeadNorm,
    MatrixMemory,
    PerToken,
    chunked_elements,
    chunked_flops,
    unit,
)
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked


@dataclass(frozen=True, kw_only=True)
class DeltaNetOptions(Options):
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
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken,
    *, options: DeltaNetOptions = DeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """Erase and write, token by token (Yang et al., section 2.2); b is the sigmoid of ``step``."""
    q, k, b = ruled(q, k, step, options)
    S, out = initial_state(k, v), []
    for qi, ki, vi, bi in zip(*(x.split(1, dim=2) for x in (q, k, v, b)), strict=True):
        S = S + bi * ki.mT @ (vi - ki @ S)
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def ruled(q: Queries, k: SelfKeys, step: PerToken, options: DeltaNetOptions) -> tuple[Tensor, ...]:
    """Queries and keys of unit length, the queries divided by √d, and b (b, h, n, 1)."""
    b = torch.sigmoid(step)[..., None] * (2 if options.negative else 1)
    q, k = note("queries", unit(q) * q.shape[-1] ** -0.5), note("keys", unit(k))
    return q, k, note("steps", b)


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken,
    *, options: DeltaNetOptions = DeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """The map of all values at once (section 3.2, for one chunk of n tokens)."""
    q, k, b = ruled(q, k, step, options)
    read, erased = (q @ k.mT).tril(), b * k @ k.mT
    weights = torch.linalg.solve_triangular(
        erased, read, upper=False, left=False, unitriangular=True
    )
    return note("weights", weights * b.mT) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken,
    *, options: DeltaNetOptions = DeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next (section 3.2)."""
    out, S = advance(q, k, v, step, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, S: Sums, options: DeltaNetOptions
) -> tuple[Outputs, Sums]:
    """The outputs of the next tokens after the state ``S``, and the state after them."""
    q, k, b = ruled(q, k, step, options)
    return chunks.advance(q, k, v, S, options.chunk, erase=b)


# ---- triton


@form
def triton(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken,
    *, options: DeltaNetOptions = DeltaNetOptions(),
) -> Outputs:  # fmt: skip
    """``chunked`` with a kernel that keeps the state. Raises ValueError where Triton cannot run."""
    rule = kernels.kernel("delta_rule", "delta_rule", q)
    q, k, b = ruled(q, k, step, options)
    out, S = rule(q, k, v, b, options.chunk)
    note("state", S)
    return out


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}
KERNELS = {"triton": triton}

# ---- module


class DeltaNet(MatrixMemory):
    """Multi-head delta rule: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. ``step`` decodes; its state is S of
    every head, and the last inputs of the convolution.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "matrix", "chunked", "triton"] = "chunked",
        options: DeltaNetOptions = DeltaNetOptions(), head_dim: Size | None = None,
        value_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=options.width, head_dim=head_dim, value_dim=value_dim)
        self.form, self.options = form, options
        self.forms = with_options({**FORMS, **KERNELS}, options)
        self.steps = nn.Linear(dim, heads, bias=False)
        self.set_output(HeadNorm(heads, self.value_dim, dim))

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        return (self.steps(x).mT,)

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v, step = given
        return advance(q, k, v, step, S, self.options)


# ---- card

n, h, d, e, c, p = letters("n h d e c p")
convolution = 2 * p * n * h * (2 * d + e)
t = 16  # tokens of a chunk of the kernel

CARD = Card(
    __doc__,
    name="deltanet",
    family="recurrence",
    role="mix",
    forms=FORMS,
    kernels=KERNELS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=DeltaNetOptions,
    letters={"c": "chunk", "p": "width"},
    time={
        "naive": 6 * h * n * d * e + convolution,
        "matrix": h * n**2 * (4 * d + 2 * e + n) + convolution,
        "chunked": h * n * chunked_flops(c, d, e, erase=True) + convolution,
        "triton": h * n * (t * (5 * d + 3 * e) + 6 * d * e) + convolution,
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * (2 * d + e + n),
        "chunked": h * n * chunked_elements(c, d, e, erase=True),
        "triton": h * n * (2 * d + e + t + d * e / t),
    },
    notes={
        "naive": ("queries", "keys", "steps", "state"),
        "matrix": ("queries", "keys", "steps", "weights"),
        **dict.fromkeys(("chunked", "triton"), ("queries", "keys", "steps", "state")),
    },
    variants=({"chunk": 3, "negative": True}, {"width": 1, "chunk": 5}),
    build=DeltaNet,
    aliases=("delta_net", "delta_rule"),
)
