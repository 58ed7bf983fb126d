r"""Synthesizer: attention weights without comparing queries with keys.

Softmax attention compares each pair of tokens. A Synthesizer leaves the comparison out: the n × n
logits $S$ are a function of one token at a time, or of none; the rest is unchanged.

$$Y = \mathrm{softmax}(S)\, V, \qquad V = X W_V$$

``dense``              $S_i = F(x_i)$, $F(x) = W_2\,\mathrm{relu}(W_1 x + b_1) + b_2$
``random``             $S = R$, a trained table
``fixed_random``       $S = R$, left as it was drawn
``factorized_random``  $S = R_1 R_2^\top$, of rank k = 8
``factorized_dense``   $S_{ij} = A_i[j \bmod a] \cdot B_i[\lfloor j/a \rfloor]$, $A_i = F_A(x_i)$,
                       $B_i = F_B(x_i)$, $a\,b = L$
``random_dense``, ``dense_vanilla``, ``random_vanilla``
                       $S = \sum_s \alpha_s S_s$ with $\sum_s \alpha_s = 1$; vanilla is
                       $Q K^\top / \sqrt d$

L is ``max_len``, the longest sequence: a column of $W_2$ and an entry of $R$ belong to a position,
so a longer sequence is refused. Parameters in place of the 2 dim² of $W_Q$ and $W_K$: dim² + dim L
for Dense, h L² for Random, none for Fixed Random, 2 h L k for Factorized Random, dim² + dim (a + b)
for Factorized Dense (one hidden layer feeds both $F_A$ and $F_B$), biases not counted; of a mixture
the sum.

Every $S$ that is not a table is a product of two thin matrices. Factorized Random is
attention between two learned position embeddings; Dense is attention whose queries are
relu(x W₁ + b₁) and whose *keys are parameters*, one per position (its bias is one more column:
queries end in 1, keys in b₂). So the forms take factors, and a table for logits without factors:

$$S = \text{rows} \cdot \text{columns}^\top + \text{table}$$

``naive``   multiplies out: the n × m logits, their softmax, the mean of the values.
``fused``   gives the factors to PyTorch's ``scaled_dot_product_attention`` (with scale 1), so that
            no n × m tensor exists for Dense, Factorized Random and Dense + Vanilla. Random tables
            and Factorized Dense have full rank: there the n × m logits are the mechanism.

Cost: n × m logits times values remain, $2 h n m (r + e)$ FLOPs; the cost stays quadratic, but
without the comparison (r = 0 for Random). Causal masks and padding work as for softmax attention,
on the logits; row i of Dense depends on $x_i$ only and Random on nothing, so under a causal mask
both are strictly causal. ``Synthesizer.step`` decodes with a cache of values (and of keys where
vanilla is mixed in).

The paper's letters: $B$, $R$ (logits) are our $S$; $N$ (length) is n and, for what is stored, L;
$G(X)$ is V; $k$ is ``rank``; $C$, $H_A$, $H_B$ are the last row's formula above.

Where the paper is silent. Per head F reads the whole token $x_i$ and has a
hidden width of dim / heads, so that a layer counts dim² + dim L, the paper's formula for a model
of that width (its counts in the millions are smaller: see ``attnlab.models.published``). $H_A$ and
$H_B$ both "duplicate" in version 1; with the authors' survey (arXiv:2009.06732) the one tiles, the
other repeats, so that row i is an outer product; tiling both would repeat with period lcm(a, b).
Logits are mixed, before one softmax, not weights; the α are the softmax of one number per
component and layer, zero at the start, and shared by the heads. Synthesized
logits are not divided by $\sqrt d$; vanilla ones are. Random tables start as N(0, 1).

Common mistakes in public code. Reshaping (b, n, h, L) logits to (b, h, n, L) without a transpose
scrambles heads and positions (Long Range Arena); its padding is ignored where the dot product is;
logits are added there, not mixed. The authors' Mesh TensorFlow code has W₂ shared by all heads, no
biases, an unscaled dot product, keys left out of what is not a mixture, a factor width of 16 and,
in some modes, a length of 512 whatever ``max_length`` says.

Departures.
- a query without allowed keys gives zeros
- causal masks are aligned at the bottom right when there are fewer queries than keys
- no dropout on the weights
- a position is an index into the tensor: a sequence is padded at its end

Gives up. Tokens are not compared: the weights come from one token alone, or from none.

Tay, Bahri, Metzler, Juan, Zhao, Zheng. Synthesizer: Rethinking Self-Attention for Transformer
Models. ICML 2021, arXiv:2005.00743, section 3.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.patterns import Mask, Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import (
    NewTokens,
    Outputs,
    SelfValues,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.lowrank.synthesizer.logits import Logits, mixed
from attnlab.mechanisms.lowrank.synthesizer.options import VARIANTS, SynthesizerOptions

__all__ = [
    "CARD", "FORMS", "VARIANTS", "Synthesizer", "SynthesizerOptions", "dense", "fused", "naive",
]  # fmt: skip

# ---- dense, as the paper has it


@form
def dense(
    x: Tokens, W_1: Float[Tensor, "h dim d"], b_1: Float[Tensor, "h d"],
    W_2: Float[Tensor, "h d n"], b_2: Float[Tensor, "h n"], v: SelfValues,
) -> Outputs:  # fmt: skip
    """Each token writes its own row of logits (Tay et al., section 3.1)."""
    S = F.relu(x[:, None] @ W_1 + b_1[:, None]) @ W_2 + b_2[:, None]
    return S.softmax(dim=-1) @ v


# ---- naive

# All variants are factors and a table: those of ``dense`` are (relu(x W₁ + b₁), 1) and (W₂ᵀ, b₂).
Rows = Float[Tensor, "b h n r"]
Columns = Float[Tensor, "b h m r"]
Table = Float[Tensor, "#b #h n m"] | None


@form
def naive(
    rows: Rows, columns: Columns, v: Values, *, table: Table = None, mask: Mask = None
) -> Outputs:
    """softmax(rows · columnsᵀ + table) V, dense."""
    allowed = patterns.dense_of(mask, rows, v)
    logits = rows @ columns.mT
    logits = note("logits", logits if table is None else logits + table)
    weights = note("weights", masked_softmax(logits, allowed))
    return weights @ v


# ---- fused


@checked
def fused(
    rows: Rows, columns: Columns, v: Values, *, table: Table = None, mask: Mask = None
) -> Outputs:
    """PyTorch's ``scaled_dot_product_attention``; factors are its queries and keys, a table its
    additive mask."""
    n, m, e = rows.shape[-2], *v.shape[-2:]
    if table is None:
        rows, columns, v = _equally_wide(rows, columns, v)
        if patterns.is_causal(mask) and n == m:  # PyTorch aligns is_causal at the top left
            out = F.scaled_dot_product_attention(rows, columns, v, is_causal=True, scale=1.0)
            return out[..., :e]
    bias = patterns.as_mask(mask, n, m, v.device, *v.shape[:2])
    if table is not None:
        bias = table if bias is None else table.masked_fill(~bias, -torch.inf)
    out = F.scaled_dot_product_attention(rows, columns, v, attn_mask=bias, scale=1.0)
    return out[..., :e]


def _equally_wide(*parts: Tensor) -> list[Tensor]:
    """Padded with zeros to one width, which the kernels without n × m weights need."""
    width = max(part.shape[-1] for part in parts)
    return [F.pad(part, (0, width - part.shape[-1])) for part in parts]


FORMS = {"naive": naive, "fused": fused}

# ---- module


class Synthesizer(Layer):
    """A layer whose logits are synthesized: (b, n, dim) → (b, n, dim), for n up to ``max_len``."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused",
        options: SynthesizerOptions = SynthesizerOptions(), bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        components = options.components
        self.heads = Heads(dim, heads, bias=bias, queries="vanilla" in components)
        self.causal, self.form, self.options = causal, form, options
        self.synthesize = nn.ModuleList(options.functions(dim, heads))
        self.mixture = nn.Parameter(torch.zeros(len(components))) if len(components) > 1 else None

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        mask = patterns.visible(self.causal, padding)
        return self._attend(zero_nonfinite_padding(x, padding), None, mask)[0]

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning): their
        values, and their keys where vanilla is mixed in (elsewhere keys of width 0)."""
        self.heads.refuse_step(self.causal)
        return self._attend(x, state, patterns.causal())

    def _attend(
        self, x: Tensor, state: KeyValueCache | None, mask: Pattern
    ) -> tuple[Tensor, KeyValueCache]:
        start = 0 if state is None else state.keys.shape[2]
        self._refuse_longer(start + x.shape[1])
        q, k, v = self._project(x)
        state = KeyValueCache.extended(state, k, v)
        parts = [function(x, start) for function in self.synthesize]
        if q is not None:
            parts.append(Logits(q * q.shape[-1] ** -0.5, state.keys))
        rows, columns, table = mixed(parts, self._weights(), state.values, x.shape[1])
        if q is None:
            note("queries", rows)
            note("keys", columns)
            note("values", state.values)
        elif start:
            note("keys", state.keys)  # all, old and new
            note("values", state.values)
        note("mask", mask)
        out = FORMS[self.form](rows, columns, state.values, table=table, mask=mask)
        return self.heads.merge(out), state

    def _project(self, x: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Queries, keys, values; without vanilla no queries, and keys of width 0."""
        if "vanilla" in self.options.components:
            return self.heads.project(x)
        v = self.heads.values(x)
        return None, v[..., :0], v

    def _weights(self) -> Tensor | None:
        """α, one per component."""
        return None if self.mixture is None else note("mixture", self.mixture.softmax(0))

    def _refuse_longer(self, n: int) -> None:
        if n > self.options.max_len:
            raise ValueError(
                f"the sequence has {n} positions, but this Synthesizer stores alignments for "
                f"max_len={self.options.max_len}; build it with max_len={n} or more, or shorten "
                "the sequence"
            )


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="synthesizer",
    family="lowrank",
    role="mix",
    forms=FORMS,
    causal="optional",
    options=SynthesizerOptions,
    time=lambda chosen: 2 * h * n * (m * (chosen.width(d) + e) + d * chosen.factor_entries(n)),
    memory=h * n * m,
    notes={"naive": ("logits", "weights")},
    variants=(
        *({"variant": variant} for variant in VARIANTS if variant != "dense"),
        {"variant": "factorized_dense", "max_len": 101 * 3, "factors": (101, 3)},
        {"variant": "factorized_random", "max_len": 101, "rank": 3},
    ),
    build=Synthesizer,
)
