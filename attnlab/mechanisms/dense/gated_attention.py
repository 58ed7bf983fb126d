r"""Gated attention: what each head has read is multiplied by a gate of the query's own token.

Between the values and the output of an attention layer there is nothing but sums: the two matrices
W_V and W_O of a head could be one of rank e. A gate after the weighted mean puts a nonlinearity
between them, and lets a token refuse what a head has read:

$$o_i = \sigma(g_i) \odot \sum_j \mathrm{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)
v_j,\qquad g_i = x_i W_g$$

$x_i$ is what the query is made of. The gate is elementwise, with a number for each of the e
coordinates of a head, or headwise, with one for the whole head. A headwise gate is a sink logit
(``dense.sink``) that depends on the query: with $L_i = \log \sum_j e^{s_{ij}}$ it gives what a
logit $L_i - g_i$ beside the scores would give. So a token with a closed gate needs no sink; the
paper finds that models trained with gates put little weight on the first token.

Cost: $2 h n m (d + e)$ FLOPs, as full attention, and $h n e$ products; the projection to the gates
has dim · h · e or dim · h parameters.

``naive``  the equation.
``fused``  PyTorch's ``scaled_dot_product_attention``, and the gate after it.

The paper's letters: $W_\theta$ is our W_g, $Y$ is what a head has read.

Common mistakes: released weights have the columns of the gates inside those of the queries, per
head first the query and then its gate. A gate on the values, or after W_O, is another function.

Departures.
- a query without allowed keys gives zeros
- no norm of queries and keys, which Qwen3-Next has beside the gate

Gives up. The weights of a row, with the gate, sum to less than one.

Qiu, Wang, Zheng, Huang, Wen, Yang, Men, Yu, Huang, Huang, Liu, Zhou, Lin. Gated Attention for Large
Language Models: Non-linearity, Sparsity, and Attention-Sink-Free. NeurIPS 2025, arXiv:2505.06708.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, queries_per_key_head, zero_nonfinite_padding
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, biased
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Context,
    GroupKeys,
    GroupValues,
    KeyPadding,
    Outputs,
    Queries,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax


@dataclass(frozen=True, kw_only=True)
class GatedAttentionOptions(Options):
    """``gates``  ``elementwise``, one for each coordinate, or ``headwise``, one for each head."""

    gates: Literal["elementwise", "headwise"] = "elementwise"


# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, gate: Outputs, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, dense. ``gate`` is g, before σ."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = note("scores", biased(q @ k.mT * scale, bias))
    weights = note("weights", masked_softmax(scores, patterns.dense_of(mask, q, k)))
    return note("gates", torch.sigmoid(gate)) * (weights @ v)


# ---- fused


@checked
def fused(
    q: Queries, k: GroupKeys, v: GroupValues, gate: Outputs, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """PyTorch's ``scaled_dot_product_attention``, then the gate."""
    queries_per_key_head(q, k)
    read = sdpa.attend(q, k, v, mask=mask, bias=bias, scale=scale)
    return note("gates", torch.sigmoid(gate)) * read


FORMS = {"naive": naive, "fused": fused}

# ---- module


class GatedHeads(Heads):
    """Projections with one more, to the gates."""

    def __init__(self, dim: int, heads: int, *, elementwise: bool, **given: Any) -> None:
        super().__init__(dim, heads, **given)
        self.gate = nn.Linear(dim, heads * (self.value_dim if elementwise else 1), bias=False)

    @checked
    def project(
        self, x: Tokens, context: Context = None, *, padding: KeyPadding = None, start: int = 0,
        at: Int[Tensor, "b n"] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Queries with their gates behind them, (b, h, n, d + e); keys; values."""
        q, k, v = super().project(x, context, padding=padding, start=start, at=at)
        x = zero_nonfinite_padding(x, padding) if context is None else x
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return torch.cat((q, gate.expand(-1, -1, -1, self.value_dim)), dim=-1), k, v


class GatedAttention(DenseAttention):
    """Multi-head attention with gates after it: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, causal: bool = False,
        form: Literal["naive", "fused"] = "fused", bias: bool = False,
        options: GatedAttentionOptions = GatedAttentionOptions(),
        positions: PositionScheme | None = None,
    ) -> None:  # fmt: skip
        def projections(dim: int, heads: int, **given: Any) -> Heads:
            return GatedHeads(dim, heads, elementwise=options.gates == "elementwise", **given)

        super().__init__(
            dim, heads, FORMS[form], kv_heads=kv_heads, causal=causal, bias=bias,
            positions=positions, projections=projections,
        )  # fmt: skip
        self.form, self.options = form, options

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Bias) -> Tensor:
        q, gate = q.split((self.heads.head_dim, self.heads.value_dim), dim=-1)
        return self.attend(q, k, v, gate, mask=mask, bias=bias)


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="gated_attention",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=GatedAttentionOptions,
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * m, "fused": h * n * (d + e)},
    notes={"naive": ("scores", "weights", "gates"), "fused": ("gates",)},
    variants=({"gates": "headwise"}, {"kv_heads": 2}),
    build=GatedAttention,
    aliases=("output_gate",),
)
