r"""Mamba-2: state space duality. A scan with one decay per head is linear attention under a mask.

Mamba gives every channel N decays; its scan is no product of matrices. Mamba-2 gives each head one
number per token. Then the state of a head is a matrix S of N rows, and keys (Mamba's B), queries
(its C) and values (its x) are what they are in linear attention:

$$S_t = a_t\, S_{t-1} + \Delta_t\, k_t v_t^\top,\qquad o_t = q_t S_t + D v_t$$

$$\Delta_t = \mathrm{softplus}(x_t w + c),\qquad a_t = e^{\Delta_t A},\qquad A < 0$$

A step $\Delta$ enters twice: a long one lets the state fade and takes the token in, one near 0
leaves the state as it is. A and the skip D are one number per head. Queries and keys are shared by
the heads of a group, as in multi-query attention; there is one group unless ``groups`` is given.

Given queries, keys and steps the output is linear in the values,

$$M = (L \odot Q K^\top)\, \mathrm{diag}(\Delta) + D\, I,\qquad L_{ij} = \prod_{s = j + 1}^{i} a_s,
\quad j \le i$$

L is 1-semiseparable: $L_{ik} = L_{ij} L_{jk}$, each block below the diagonal has rank 1, and its
inverse has the ones of the diagonal and $-a_t$ beside them, nothing else. Attention under this mask
and the scan give the same outputs: that is the duality. With a decay that never changes it is
retention; with heads of one channel it is Mamba with ``decay="scalar"``.

Around the scan: values, keys and queries pass a causal convolution of p tokens, with a bias, and
SiLU; the output is multiplied by SiLU of a second projection, then divided by the root mean square
of its group, and projected.

Cost: $4\, n h\, N P$ FLOPs token by token for heads of P channels; by chunks of c tokens $n h\,
(2 c\, (N + P) + 4 N P)$: four products of matrices that cost the same for c = N = P.

``naive``    one token after the other: fade, write, read.
``matrix``   the n × n map.
``chunked``  the map inside chunks, S from one chunk to the next. ``attnlab.core.chunks`` derives
             it.

The paper's letters: its B is our k, its C our q, its x our v; its A, a token's decay, is our a, and
its T our n.

Common mistakes: the step left out of what is written, or of the decay; L by differences of running
sums, which is wrong beside a decay of $e^{-10^{20}}$; the norm before the gate, as Gated DeltaNet
has it.

Readings. The block follows the released code (state-spaces/mamba); the paper was not at hand.

Departures.
- the projections lie one after the other in the order queries, keys, values, those of the released
  code in the order gate, values, keys, queries, steps. The layer is the same after a permutation.
- steps have no bounds other than 0; the released code can clip them, and does not by default
- padded tokens are skipped

Gives up. All channels of a key fade alike, and nothing is erased.

Dao, Gu. Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
Space Duality. ICML 2024, arXiv:2405.21060.
"""

from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.core.card import Card, letters
from attnlab.core.chunks import Sums, initial_state
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.matrix_memory import PerHead, PerToken, chunked_elements, chunked_flops
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, checked
from attnlab.core.state_space_block import StateSpaceBlock


@dataclass(frozen=True, kw_only=True)
class Mamba2Options(Options):
    """The sizes of the state and of the block, and how the scan is computed.

    ``state``   rows of the state of each head, the width of queries and keys (N)
    ``expand``  channels of the block in units of dim, spread over its heads (E)
    ``groups``  of heads that share queries and keys (G)
    ``width``   taps of the short convolution (p)
    ``chunk``   tokens per chunk of the chunked form (c)
    """

    state: Size = 128
    expand: Size = 2
    groups: Size = 1
    width: Size = 4
    chunk: Size = 64


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, log_A: PerHead, skip: PerHead
) -> Outputs:
    """Fade, write and read, token by token; Δ is the softplus of ``step``."""
    delta, log_a = ruled(step, log_A)
    S, out = initial_state(k, v), []
    for qi, ki, vi, ai in zip(
        *(x.split(1, dim=2) for x in (q, k, delta * v, log_a.exp())), strict=True
    ):
        S = ai * S + ki.mT @ vi
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2) + skip[:, None, None] * v


def ruled(step: PerToken, log_A: PerHead) -> tuple[Tensor, Tensor]:
    """Δ and log a, (b, h, n, 1)."""
    delta = F.softplus(step)[..., None]
    return note("steps", delta), note("decays", -log_A.exp()[:, None, None] * delta)


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, log_A: PerHead, skip: PerHead
) -> Outputs:
    """The map of all values at once, its mask summed segment by segment."""
    delta, log_a = ruled(step, log_A)
    L = chunks.segments(log_a[..., 0]).exp()
    own = torch.diag_embed(skip[:, None].expand(-1, q.shape[2]))
    return note("weights", L * (q @ k.mT) * delta.mT + own) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, log_A: PerHead, skip: PerHead,
    *, options: Mamba2Options = Mamba2Options(),
) -> Outputs:  # fmt: skip
    """The map inside chunks, the state from one to the next."""
    out, S = advance(q, k, v, step, log_A, skip, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, step: PerToken, log_A: PerHead, skip: PerHead, S: Sums,
    options: Mamba2Options,
) -> tuple[Outputs, Sums]:  # fmt: skip
    """The outputs of the next tokens after the state ``S``, and the state after them."""
    delta, log_a = ruled(step, log_A)
    out, S = chunks.advance(q, k, delta * v, S, options.chunk, log_decay=log_a)
    return out + skip[:, None, None] * v, S


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class Mamba2(StateSpaceBlock):
    """The block of Mamba-2: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    Its ``heads`` share expand · dim channels of values; queries and keys have the width ``state``,
    and consecutive heads share those of their group. ``step`` decodes; its state is S of every
    head, and the last inputs of the convolution.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: Mamba2Options = Mamba2Options(),
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, state=options.state, expand=options.expand, groups=options.groups,
            width=options.width,
        )  # fmt: skip
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v, step, log_A, skip = given
        return advance(q, k, v, step, log_A, skip, S, self.options)


# ---- card

n, h, dim, N, E, G, c, p = letters("n h dim N E G c p")
P = E * dim / h
convolution = 2 * p * n * (E * dim + 2 * G * N)

CARD = Card(
    __doc__,
    name="mamba2",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=Mamba2Options,
    letters={"N": "state", "E": "expand", "G": "groups", "p": "width", "c": "chunk"},
    time={
        "naive": 4 * h * n * N * P + convolution,
        "matrix": 2 * h * n**2 * (N + P) + convolution,
        "chunked": h * n * chunked_flops(c, N, P, erase=False) + convolution,
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * N + P),
        "matrix": h * n * sympy.Max(N, P, n),
        "chunked": h * n * chunked_elements(c, N, P, erase=False),
    },
    notes={
        "naive": ("steps", "decays", "state"),
        "matrix": ("steps", "decays", "weights"),
        "chunked": ("steps", "decays", "state"),
    },
    variants=({"chunk": 3, "state": 3, "expand": 1, "groups": 2}, {"width": 1, "state": 5}),
    build=Mamba2,
    aliases=("ssd", "state_space_duality"),
)
