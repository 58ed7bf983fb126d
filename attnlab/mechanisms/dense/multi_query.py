r"""Multi-query and grouped-query attention: several query heads share one key/value head.

While a model decodes, each new token reads the keys and values of all tokens before it; this
reading, not the arithmetic, takes most of the time. Multi-query attention lets all h query heads
share one key head and one value head, so the cache is h times smaller. Grouped-query attention
lies between: g key/value heads, each shared by h / g consecutive query heads.

$$o_a = \mathrm{softmax}\!\left(\frac{q_a\, k_{\lfloor a g / h \rfloor}^\top}{\sqrt d}\right)
v_{\lfloor a g / h \rfloor},\qquad a = 0 \ldots h - 1$$

g = h is multi-head attention, g = 1 multi-query attention. The attention itself needs the FLOPs of
full attention, $2 h n m (d + e)$; the cache shrinks to $g\,m\,(d + e)$ numbers, and so do the key
and value projections.

``naive``    repeats each key/value head h / g times and is then full attention.
``grouped``  does not repeat: the queries of one group are stacked and multiplied with their key
             head in one matrix product.
``fused``    PyTorch's ``scaled_dot_product_attention`` with ``enable_gqa``; memory is linear where
             e = d.

``MultiQueryAttention.step`` decodes with the small cache; its output equals the parallel form's.

The papers' letters: $h$ is ours, $G$ (groups) is our g; $k$, $v$ (widths) are d and e.

A common mistake: each head is repeated consecutively (0, 0, 1, 1), not in turn (0, 1, 0, 1).

Left out is the conversion of multi-head checkpoints by averaging heads (Ainslie et al., section
2.1), which is not part of the mechanism.

Departures.
- a query without allowed keys gives zeros
- causal masks are aligned at the bottom right when there are fewer queries than keys
- no dropout on the weights

Gives up. All heads share the same keys and values; only their queries differ.

Shazeer. Fast Transformer Decoding: One Write-Head is All You Need. 2019, arXiv:1911.02150, section
3. Ainslie, Lee-Thorp, de Jong, Zemlyanskiy, Lebrón, Sanghai. GQA: Training Generalized Multi-Query
Transformer Models from Multi-Head Checkpoints. EMNLP 2023, arXiv:2305.13245, section 2.2.
"""

from typing import Literal

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import queries_per_key_head
from attnlab.core.options import Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, biased
from attnlab.core.probe import note
from attnlab.core.shapes import GroupKeys, GroupValues, Outputs, Queries, checked
from attnlab.core.softmax import masked_softmax

# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """Full attention after repeating each key/value head h / g times, one after the other."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    allowed = patterns.dense_of(mask, q, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = note("scores", biased(q @ k.mT * scale, bias))
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


# ---- grouped


@form
def grouped(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """``naive`` without repeating: (b, g, h/g · n, d) queries times (b, g, m, d) keys."""
    repeats, n = queries_per_key_head(q, k), q.shape[-2]
    allowed = patterns.dense_of(mask, q, k)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    stacked = q.unflatten(1, (-1, repeats)).flatten(2, 3)
    scores = (stacked @ k.mT * scale).unflatten(2, (repeats, n)).flatten(1, 2)
    weights = note("weights", masked_softmax(note("scores", biased(scores, bias)), allowed))
    out = weights.unflatten(1, (-1, repeats)).flatten(2, 3) @ v
    return out.unflatten(2, (repeats, n)).flatten(1, 2)


# ---- fused


@checked
def fused(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """PyTorch's ``scaled_dot_product_attention``, which repeats heads if its kernel needs it."""
    queries_per_key_head(q, k)  # refuses numbers of heads that do not fit
    return sdpa.attend(q, k, v, mask=mask, bias=bias, scale=scale)


FORMS = {"naive": naive, "grouped": grouped, "fused": fused}

# ---- module


class MultiQueryAttention(DenseAttention):
    """Attention with g = ``kv_heads`` key/value heads: (b, n, dim) → (b, n, dim).

    ``step`` decodes with a cache of g·t·(d + e) numbers per sequence.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, kv_heads: Size = 1, causal: bool = False,
        form: Literal["naive", "grouped", "fused"] = "fused", bias: bool = False,
        positions: PositionScheme | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, FORMS[form],
            kv_heads=kv_heads, causal=causal, bias=bias, positions=positions,
        )  # fmt: skip
        self.form = form


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="multi_query",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * m, "grouped": h * n * m, "fused": h * n * e},
    notes={"naive": ("scores", "weights"), "grouped": ("scores", "weights")},
    variants=({"kv_heads": 2}, {"kv_heads": 6}),
    build=MultiQueryAttention,
    aliases=("mqa", "gqa", "grouped_query"),
)
