r"""Lightning attention: linear attention whose heads fade at rates that the layer's depth sets.

Linear attention adds $k_t v_t^\top$ to a sum S and never forgets. Here each head multiplies S by a
constant at each token, as retention does; queries and keys are not turned by their position:

$$S_t = e^{-s} S_{t-1} + k_t v_t^\top,\qquad o_t = q_t S_t,\qquad [q, k, v] = \mathrm{silu}(x W)$$

$$y = \big(\mathrm{norm}(o) \odot \sigma(x W_g)\big) W_O,\qquad s_j = 2^{-8 j / h}
\Big(1 - \frac{l}{L - 1}\Big),\quad j = 1 \ldots h$$

The slopes $2^{-8 j / h}$ are those of ALiBi. Each layer l = 0 … L - 1 of a model fades less than
the one before it, and the last hardly at all. There is no denominator: the heads together are
divided by their root mean square.

Given queries and keys the output is linear in the values, by the map $M_{ij} = e^{-s (i - j)}\, q_i
\cdot k_j$ for j ≤ i. MiniMax-01 has seven such layers for each one of softmax attention.

Cost: $4\, n h\, d e$ FLOPs token by token; by chunks of c tokens $n h\, (2 c\, (d + e) + 4 d e)$.

``naive``    one token after the other: fade, write, read.
``matrix``   the n × n map.
``chunked``  the map inside chunks, S from one chunk to the next. ``attnlab.core.chunks`` derives
             it. Lightning attention is the name of a GPU kernel that computes this form.

Common mistakes: slopes of head 0 … h - 1; the fading of a whole chunk in place of a shorter last
one; queries divided by √d.

Departures.
- the projections of queries, keys and values lie one after the other, those of the released
  MiniMax are interleaved by heads. The layer is the same after a permutation of the rows.
- 1e-5 is added to L - 1 and to the factor of the layer, as in the released code
- padded tokens are skipped

Gives up. The past fades at a rate that is fixed per head, whatever the tokens say.

Qin, Sun, Li, Shen, Sun, Zhong. Lightning Attention-2: A Free Lunch for Handling Unlimited Sequence
Lengths in Large Language Models. 2024, arXiv:2401.04658. The layer: MiniMax. MiniMax-01: Scaling
Foundation Models with Lightning Attention. 2025, arXiv:2501.08313.
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
from attnlab.core.matrix_memory import HeadNorm, MatrixMemory, chunked_elements, chunked_flops
from attnlab.core.options import Count, Options, Size
from attnlab.core.precision import exact_dtype, upcast
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, Tokens, checked


@dataclass(frozen=True, kw_only=True)
class LightningOptions(Options):
    """Which layer of how many it is, and how the rule is computed.

    ``layer``   its place among the layers of the model, from 0 (l)
    ``layers``  of the model (L)
    ``chunk``   tokens per chunk of the chunked form (c)
    """

    layer: Count = 0
    layers: Size = 1
    chunk: Size = 64

    def check(self) -> None:
        if self.layer >= self.layers:
            raise ValueError(
                f"layer={self.layer} should be below layers={self.layers}: they are counted from 0"
            )


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, *, options: LightningOptions = LightningOptions()
) -> Outputs:
    """Fade, write and read, token by token."""
    S, out, kept = initial_state(k, v), [], log_decays(q, options).exp()
    for qi, ki, vi in zip(*(x.split(1, dim=2) for x in (q, k, v)), strict=True):
        S = kept * S + ki.mT @ vi
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def log_decays(q: Queries, options: LightningOptions) -> Tensor:
    """-s of every head, (1, h, 1, 1)."""
    h, n = q.shape[1:3]
    head = torch.arange(1, h + 1, dtype=exact_dtype(q.device), device=q.device)
    factor = 1 - options.layer / (options.layers - 1 + 1e-5) + 1e-5
    slopes = (2 ** (-8 * head / h) * factor).to(upcast(q).dtype)
    found = -slopes[None, :, None, None]
    note("decays", found.expand(1, h, n, 1))
    return found


# ---- matrix


@form
def matrix(
    q: Queries, k: SelfKeys, v: SelfValues, *, options: LightningOptions = LightningOptions()
) -> Outputs:
    """The map of all values at once."""
    log = log_decays(q, options)[..., 0].expand(-1, -1, q.shape[2])
    fading = chunks.segments(log).exp()
    return note("weights", q @ k.mT * fading) @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, *, options: LightningOptions = LightningOptions()
) -> Outputs:
    """The map inside chunks, the state from one to the next."""
    out, S = advance(q, k, v, initial_state(k, v), options)
    note("state", S)
    return out


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, S: Sums, options: LightningOptions
) -> tuple[Outputs, Sums]:
    """The outputs of the next tokens after the state ``S``, and the state after them."""
    return chunks.advance(q, k, v, S, options.chunk, log_decay=log_decays(q, options))


FORMS = {"naive": naive, "matrix": matrix, "chunked": chunked}

# ---- module


class Lightning(MatrixMemory):
    """Multi-head lightning attention: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d and ``value_dim`` e default to dim / heads. ``step`` decodes; its state is S of
    every head.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "matrix", "chunked"] = "chunked",
        options: LightningOptions = LightningOptions(), head_dim: Size | None = None,
        value_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=None, head_dim=head_dim, value_dim=value_dim)
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        values = heads * self.value_dim
        gate = nn.Linear(dim, values, bias=False)
        self.set_output(HeadNorm(1, values, dim, gate=gate, squash=torch.sigmoid))

    def _taken(self, x: Tokens, inputs: Tensor, before: Tensor | None) -> tuple[Tensor, ...]:
        return super()._taken(x, F.silu(inputs), before)

    def _gates(self, x: Tokens) -> tuple[Tensor, ...]:
        return ()

    def _advance(self, S: Sums, *given: Tensor) -> tuple[Tensor, Sums]:
        q, k, v = given
        return advance(q, k, v, S, self.options)


# ---- card

n, h, d, e, c = letters("n h d e c")

CARD = Card(
    __doc__,
    name="lightning",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=LightningOptions,
    letters={"c": "chunk"},
    time={
        "naive": 4 * h * n * d * e,
        "matrix": 2 * h * n**2 * (d + e),
        "chunked": h * n * chunked_flops(c, d, e, erase=False),
    },
    launches={"naive": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n * (2 * d + e),
        "matrix": h * n * sympy.Max(d, e, n),
        "chunked": h * n * chunked_elements(c, d, e, erase=False),
    },
    notes={
        "naive": ("decays", "state"),
        "matrix": ("decays", "weights"),
        "chunked": ("decays", "state"),
    },
    variants=({"chunk": 3, "layer": 1, "layers": 2}, {"chunk": 5, "layer": 1, "layers": 4}),
    build=Lightning,
    aliases=("lightning_attention",),
)
