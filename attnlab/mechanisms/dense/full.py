r"""Full attention: every position is compared with all positions, and takes a mean of their values.

A query $q_i$ is compared with each key $k_j$ by a dot product; a softmax turns the scores of one
row into weights that sum to one; the output is the weighted mean of the values:

$$O = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt d}\right) V$$

The scale keeps the variance of the scores at one: for independent entries of variance one, $q \cdot
k$ has variance d, and without the $1/\sqrt d$ the softmax of wide heads saturates. Several heads
run in parallel, each with its own projections; an output projection joins them
(``attnlab.core.heads``).

Cost: $2 h n m (d + e)$ FLOPs. The naive form holds the n × m scores.

``naive``   the equation.
``fused``   PyTorch's ``scaled_dot_product_attention``. Its kernels need e = d; with another
            value width it does hold n × m weights.

The output is linear in V. ResFormer (Zhou et al. 2025, arXiv:2410.17897) mixes the values of each
layer with those of the first one: $A (\lambda_1 V_1 + \lambda_2 V) = \lambda_1 A V_1 + \lambda_2 A
V$, so a cache keeps the mixed values.

A form that never holds the scores: FlashAttention (``dense.flash``).

The paper's letters: $n$ (length) is our n and m; $d_k$, $d_v$ are d and e.

Departures.
- a query without allowed keys gives zeros. The paper has no such rows.
- causal masks are aligned at the bottom right when there are fewer queries than keys. Decoding with
  a cache needs this; PyTorch's ``is_causal`` is aligned at the top left.
- no dropout on the weights. The paper's text drops residuals and embeddings only.
- ``scale`` and ``head_dim`` are options, as T5 has none of the first (``scale=1``) and in some
  sizes heads whose widths do not add up to dim

Gives up. Nothing: every pair of tokens is compared, so the cost is quadratic.

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin. Attention Is All You Need.
NeurIPS 2017, arXiv:1706.03762, section 3.2.
"""

from functools import partial
from typing import Literal

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.options import Size, check_value
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, biased
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.softmax import masked_softmax

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, dense (Vaswani et al., eq. 1). ``scale`` is 1/√d unless given."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    allowed = patterns.dense_of(mask, q, k)
    scores = note("scores", biased(q @ k.mT * scale, bias))
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


# ---- fused


@checked
def fused(
    q: Queries, k: Keys, v: Values, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """PyTorch's ``scaled_dot_product_attention``, with the mask in its cheapest form."""
    return sdpa.attend(q, k, v, mask=mask, bias=bias, scale=scale)


FORMS = {"naive": naive, "fused": fused}

# ---- module


class FullAttention(DenseAttention):
    """Multi-head attention: (b, n, dim) → (b, n, dim), by any of the forms.

    scale: what the products q · k are multiplied by, 1/√d if not given.
    head_dim: width d of a head, dim / heads if not given.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused", bias: bool = False,
        positions: PositionScheme | None = None, scale: float | None = None,
        head_dim: Size | None = None,
    ) -> None:  # fmt: skip
        scale = check_value("scale", scale, float | None)
        attend = FORMS[form] if scale is None else partial(FORMS[form], scale=scale)
        super().__init__(
            dim, heads, attend, causal=causal, bias=bias, positions=positions,
            projections=partial(Heads, head_dim=head_dim),
        )  # fmt: skip
        self.form, self._scale = form, scale

    @property
    def scale(self) -> float:
        """What the products q · k are multiplied by; 1/√d of the heads that the layer has now."""
        return self.heads.head_dim**-0.5 if self._scale is None else self._scale


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="full",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * m, "fused": h * n * e},
    notes={"naive": ("scores", "weights")},
    build=FullAttention,
)
