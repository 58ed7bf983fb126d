r"""Soft cap: a tanh keeps every score between −c and c.

A score has no largest value: it grows with the length of its query and of its key. Here each goes
through a function that is bounded and nearly the identity for small scores:

$$o_i = \sum_j \mathrm{softmax}_j\!\left(c \tanh \frac{q_i \cdot k_j}{c \sqrt d}\right) v_j$$

The order of the scores stays the same, and no weight is more than $e^{2c}$ times another of its
row. The slope of the cap is $1 - \tanh^2$, so a score far beyond c has almost no gradient. With c
→ ∞ it is full attention. Gemma 2 has c = 50, and caps its output logits in the same way with 30;
Gemma 3 has QK-norm instead (``dense.qk_norm``).

Cost: $2 h n m (d + e)$ FLOPs and h · n · m calls of tanh.

``naive``  the equation.

The paper's letters: soft_cap is our c.

Common mistakes: to cap after masking, which turns −∞ into −c and gives masked keys a weight; to
call ``scaled_dot_product_attention``, which has no cap, and so to run another model than the one
that was trained.

Departures.
- the scale is 1/√d; Gemma 2 has a number of its own for each size, in the largest not that of d
- a query without allowed keys gives zeros

Gives up. PyTorch's fused kernel, which takes no function of the scores.

Gemma Team. Gemma 2: Improving Open Language Models at a Practical Size. 2024, arXiv:2408.00118.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from attnlab.core import patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import queries_per_key_head
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, biased
from attnlab.core.probe import note
from attnlab.core.shapes import GroupKeys, GroupValues, Outputs, Queries, checked
from attnlab.core.softmax import masked_softmax


@dataclass(frozen=True, kw_only=True)
class SoftCapOptions(Options):
    """``cap``  c, which no score exceeds."""

    cap: float = 50.0

    def check(self) -> None:
        if self.cap <= 0:
            raise ValueError(f"cap should be a number above 0, got {self.cap}")


# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
    options: SoftCapOptions = SoftCapOptions(),
) -> Outputs:  # fmt: skip
    """The equation, dense. A ``bias`` is added to the capped scores."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = note(
        "scores", biased(options.cap * torch.tanh(q @ k.mT * (scale / options.cap)), bias)
    )
    return note("weights", masked_softmax(scores, patterns.dense_of(mask, q, k))) @ v


FORMS = {"naive": naive}

# ---- module


class SoftCapAttention(DenseAttention):
    """Multi-head attention with capped scores: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, causal: bool = False, form: Literal["naive"] = "naive",
        bias: bool = False, options: SoftCapOptions = SoftCapOptions(),
        positions: PositionScheme | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, partial(FORMS[form], options=options), kv_heads=kv_heads, causal=causal,
            bias=bias, positions=positions,
        )  # fmt: skip
        self.form, self.options = form, options


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="soft_cap",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=SoftCapOptions,
    time=2 * h * n * m * (d + e),
    memory=h * n * m,
    notes={"naive": ("scores", "weights")},
    variants=({"cap": 2.0, "kv_heads": 2},),
    build=SoftCapAttention,
    aliases=("logit_soft_cap", "softcap"),
)
