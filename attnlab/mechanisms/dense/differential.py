r"""Differential attention: the difference of two softmaxes, in which what both see cancels.

A softmax gives a little weight to everything, and over a long text that little adds up. Each head
here has two queries and two keys for a token. They make two maps of weights, and the second, times
a number λ, is subtracted from the first, as a differential amplifier subtracts what both its inputs
pick up:

$$o_i = \sum_j \left(a^1_{ij} - \lambda\, a^2_{ij}\right) v_j,\qquad a^s_{ij} =
\mathrm{softmax}_j\!\left(\frac{q^s_i \cdot k^s_j}{\sqrt d}\right)$$

The rows of the difference sum to 1 − λ, and a weight may be negative.

``v1``  queries and keys have half the width of the values, so that a head costs what a head of full
        attention does. λ is one number for a layer, made of four learned vectors, and each head's
        output is normalised:

$$\lambda = e^{\lambda_{q1} \cdot \lambda_{k1}} - e^{\lambda_{q2} \cdot \lambda_{k2}} +
\lambda_0,\qquad \lambda_0 = 0.8 - 0.6\, e^{-0.3\, l},\qquad y_i = (1 - \lambda_0)\,
\mathrm{RMSNorm}(o_i)$$

for layer l, from 0. ``v2`` is the authors' later version: both queries have the full width and
share one key, λ = σ(x W_λ) is a number for each token and head, and there is no norm. So a head can
take less than a whole from its keys, as one with a gate (``dense.gated_attention``).

With λ = 0 it is full attention, and with equal maps and λ = 1 nothing is left. The first token of a
causal layer reads (1 − λ) v_0 whatever its scores.

Cost, with d = dim / h: if the maps are subtracted first, $2 h n m (d + e)$ FLOPs in v1, as full
attention, and $2 h n m (2d + e)$ in v2. As two calls of fused attention, $4 h n m (d + e)$: values
are read twice, and the narrow queries of v1 are filled up to the width of the values.

``naive``  the equation: two maps, their difference, one product with the values.
``fused``  PyTorch's ``scaled_dot_product_attention`` twice, and the difference of what was read.

The paper's letters: $\lambda_{\mathrm{init}}$ is our λ_0.

Common mistakes: to count layers from 1 in λ_0, as the paper's text does, without its l − 1 in the
exponent; to pair heads in v2 that do not share a key. The authors' code has the two halves of a
head side by side; Transformers' DiffLlama has the first halves of all heads, then the second ones,
which is another order of the columns of W_Q, W_K and W_V.

Departures.
- λ_0 is that of the option ``layer``, by default the first layer's, 0.2, in every layer
- half a head is rounded up to an even number, so that a rotation can turn it
- the norm has a gain, as in the authors' code; DiffLlama has none

Gives up. Weights are no shares: they may be negative, and their sum is less than one.

Ye, Dong, Xia, Sun, Zhu, Huang, Wei. Differential Transformer. ICLR 2025, arXiv:2410.05258. Ye,
Dong, Sun, Wei. Differential Transformer V2. Hugging Face blog, January 2026.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import sympy
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, queries_per_key_head, zero_nonfinite_padding
from attnlab.core.norms import RMSNorm
from attnlab.core.options import Count, Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, Rotation, biased
from attnlab.core.probe import note
from attnlab.core.shapes import Context, GroupValues, KeyPadding, Outputs, Tokens, checked
from attnlab.core.softmax import masked_softmax

TwoQueries = Float[Tensor, "b h 2 n d"]
TwoKeys = Float[Tensor, "b g 2 m d"]  # of a group of heads
Lambdas = Float[Tensor, "b h n"]  # λ of each query


@dataclass(frozen=True, kw_only=True)
class DifferentialOptions(Options):
    """``version``  v1 or v2.
    ``layer``    the number of the layer, from 0, which decides λ_0 of v1.
    """

    version: Literal["v1", "v2"] = "v1"
    layer: Count = 0

    def check(self) -> None:
        if self.version == "v2" and self.layer:
            raise ValueError(
                f"layer={self.layer} is for the λ that v1 starts from; v2 has none, leave it out"
            )

    @property
    def start(self) -> float:
        """λ_0."""
        return 0.8 - 0.6 * math.exp(-0.3 * self.layer)


# ---- naive


@form
def naive(
    q: TwoQueries, k: TwoKeys, v: GroupValues, subtract: Lambdas, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, dense. ``subtract`` is λ of each query."""
    weights, subtracted = maps(q, k, subtract, mask, bias, scale)
    note("subtracted", subtracted)
    return note("weights", weights) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def maps(
    q: Tensor, k: Tensor, subtract: Tensor, mask: Mask, bias: Bias, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The weights, and λ times the second map, which was subtracted; each (b, h, n, m)."""
    k = k.repeat_interleave(queries_per_key_head(q, k), dim=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    allowed = patterns.dense_of(mask, q[:, :, 0], k[:, :, 0])
    first, second = (
        masked_softmax(biased(q[:, :, s] @ k[:, :, s].mT * scale, bias), allowed) for s in (0, 1)
    )
    subtracted = subtract[..., None] * second
    return first - subtracted, subtracted


# ---- fused


@checked
def fused(
    q: TwoQueries, k: TwoKeys, v: GroupValues, subtract: Lambdas, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """What one map reads less λ times what the other reads. Zeros fill up what is narrower: the
    kernels want one width."""
    queries_per_key_head(q, k)
    for name, at in (("weights", 0), ("subtracted", 1)):
        note(name, partial(noted, q, k, subtract, mask, bias, scale, at))
    (d, e), width = (q.shape[-1], v.shape[-1]), max(q.shape[-1], v.shape[-1])
    scale = d**-0.5 if scale is None else scale
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    first, second = (
        sdpa.attend(q[:, :, s], k[:, :, s], v, mask=mask, bias=bias, scale=scale) for s in (0, 1)
    )
    return (first - subtract[..., None].to(second.dtype) * second)[..., :e]


@form
def noted(
    q: TwoQueries, k: TwoKeys, subtract: Lambdas,
    mask: Mask, bias: Bias, scale: float | None, at: int,
) -> Tensor:  # fmt: skip
    """One of ``maps``, for whoever looks."""
    return maps(q, k, subtract, mask, bias, scale)[at]


FORMS = {"naive": naive, "fused": fused}

# ---- module


class DifferentialHeads(Heads):
    """Two queries for each head, one after the other; two keys, or in v2 one, for each group."""

    def __init__(
        self, dim: int, heads: int, options: DifferentialOptions, *,
        bias: bool, positions: PositionScheme | None, **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, bias=bias, queries=False, positions=positions, **given)
        self.keys = 2 if options.version == "v1" else 1
        if options.version == "v1":
            self.head_dim = 2 * -(-self.value_dim // 4)
        if isinstance(positions, Rotation):
            self.positions = _of_width(positions, self.head_dim, self.value_dim)
        self.query = nn.Linear(dim, heads * 2 * self.head_dim, bias=bias)
        self.key = nn.Linear(dim, self.kv_heads * self.keys * self.head_dim, bias=bias)
        self.subtract = nn.Linear(dim, heads) if options.version == "v2" else None

    @checked
    def project(
        self, x: Tokens, context: Context = None, *, padding: KeyPadding = None, start: int = 0,
        at: Int[Tensor, "b n"] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Queries (b, h, n, 2d), in v2 with λ before σ behind them; keys (b, g, m, 2d or d)."""
        q, k, v = self.projected(x, context, padding=padding, start=start, at=at)
        q, k = note("queries", _beside(q, 2)), note("keys", _beside(k, self.keys))
        note("values", v)
        if self.subtract is None:
            return q, k, v
        x = zero_nonfinite_padding(x, padding) if context is None else x
        return torch.cat((q, self.subtract(x).mT[..., None]), dim=-1), k, v


def _of_width(positions: Rotation, width: int, whole: int) -> Rotation:
    """A scheme that was built for the layer's heads, for its queries."""
    return positions.of_width(width) if positions.head_dim == whole else positions


def _beside(x: Tensor, sets: int) -> Tensor:
    """(b, sets · h, n, d) → (b, h, n, sets · d)."""
    return x.unflatten(1, (-1, sets)).transpose(2, 3).flatten(-2)


def _apart(x: Tensor, sets: int) -> Tensor:
    """(b, h, n, sets · d) → (b, h, sets, n, d)."""
    return x.unflatten(-1, (sets, -1)).transpose(2, 3)


class DifferentialAttention(DenseAttention):
    """Multi-head attention with differences of maps: (b, n, dim) → (b, n, dim)."""

    one_softmax = False

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, causal: bool = False,
        form: Literal["naive", "fused"] = "fused", bias: bool = False,
        options: DifferentialOptions = DifferentialOptions(),
        positions: PositionScheme | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, FORMS[form], kv_heads=kv_heads, causal=causal, bias=bias,
            positions=positions, projections=partial(DifferentialHeads, options=options),
        )  # fmt: skip
        self.form, self.options = form, options
        if options.version == "v1":
            self.vectors = nn.Parameter(0.1 * torch.randn(4, self.heads.head_dim))
            self.norm = RMSNorm(self.heads.value_dim, eps=1e-5)

    @property
    def subtract(self) -> Float[Tensor, ""]:
        """λ of v1, in float32 or wider: one number for all heads and tokens."""
        q1, k1, q2, k2 = self.vectors.to(torch.promote_types(self.vectors.dtype, torch.float32))
        return (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + self.options.start

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Bias) -> Tensor:
        heads: DifferentialHeads = self.heads  # type: ignore[assignment]
        k = _apart(k, heads.keys).expand(-1, -1, 2, -1, -1)
        if heads.subtract is not None:
            q, logits = q[..., :-1], q[..., -1]
            return self.attend(_apart(q, 2), k, v, logits.sigmoid(), mask=mask, bias=bias)
        q, subtract = _apart(q, 2), self.subtract.to(q.dtype).expand(q.shape[:3])
        out = self.attend(q, k, v, subtract, mask=mask, bias=bias)
        return (1 - self.options.start) * self.norm(out)


# ---- card

h, n, m, d, e = letters("h n m d e")


def products(options: DifferentialOptions) -> sympy.Expr:
    """The width of all that is multiplied for a pair by ``naive``."""
    return d + e if options.version == "v1" else 2 * d + e


CARD = Card(
    __doc__,
    name="differential",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=DifferentialOptions,
    time={
        "naive": lambda options: 2 * h * n * m * products(options),
        "fused": 4 * h * n * m * (d + e),
    },
    memory={"naive": h * n * m, "fused": 2 * h * n * (d + e)},
    notes=dict.fromkeys(FORMS, ("weights", "subtracted")),
    variants=({"version": "v2"}, {"kv_heads": 2, "layer": 3}, {"version": "v2", "kv_heads": 3}),
    build=DifferentialAttention,
    aliases=("differential_transformer", "diff_transformer"),
)
