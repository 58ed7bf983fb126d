r"""α-entmax and adaptively sparse attention: weights that are exactly zero for most keys.

A softmax gives every key a weight above zero. It is one of a family of functions that solve

$$\mathrm{entmax}_\alpha(z) = \arg\max_p\; p \cdot z + H_\alpha(p),\qquad
H_\alpha(p) = \frac{1}{\alpha (\alpha - 1)} \sum_i (p_i - p_i^\alpha)$$

over all p ≥ 0 that sum to one; H is the Tsallis entropy, and for α → 1 Shannon's. The solution is

$$p_i = [(\alpha - 1)\, z_i - \tau]_+^{1/(\alpha - 1)}$$

with the one threshold τ for which the sum is one. α = 1 is the softmax, α = 2 is sparsemax (the
nearest point of the simplex), α → ∞ the largest key alone. For α > 1 a key whose score is too far
below the largest has weight 0 and gradient 0. The keys with a weight above zero are the *support*
of a row. Of two keys the weaker one is dropped once it is 1/(α − 1) behind.

In *adaptively sparse* attention each head learns its α between 1 and 2: α = 1 + sigmoid(a).

Attention is the equation of full attention with this in place of the softmax. All n × m scores are
computed: $2 h n m (d + e)$ FLOPs, h n m elements. What becomes sparse is the map, not the work.

``naive``     the threshold by its definition: by sorting for α = 1.5 and 2, by bisection for others
              (``definition``), differentiated by PyTorch.
``implicit``  Newton's method, and a backward pass that keeps the weights alone (``implicit``).
``triton``    the same for α = 1.5, as one kernel forward and one backward; it needs a GPU
              (``attnlab.core.kernels``).

The papers' letters: $d$ (the length of a row, our m), $z$ (its scores), $p$, α, τ.

Common mistakes: leaving out the factor α − 1 of z (z/2 for 1.5-entmax); the power 1/(α − 1) of a
number near 1, which loses its digits for α near 1 (here it is taken by a logarithm); rows without
allowed keys, whose sum is 0.

Departures.
- thresholds by Newton's method; the released code takes 50 steps of bisection. It does so for every
  α but 1.5 and 2.
- a learned α starts at the one that is given, in all heads; in the released code at random
- a row without allowed keys gives zeros
- no dropout on the weights

Gives up. All pairs are compared, so no time is saved; most weights become zero.

Correia, Niculae, Martins. Adaptively Sparse Transformers. EMNLP 2019, arXiv:1909.00015. Peters,
Niculae, Martins. Sparse Sequence-to-Sequence Models. ACL 2019, arXiv:1905.05702. Sparsemax:
Martins, Astudillo. ICML 2016, arXiv:1602.02068.
"""

import math
from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.core import kernels, patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import AtLeast, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, biased
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.tracing import is_abstract
from attnlab.mechanisms.learned.entmax import definition
from attnlab.mechanisms.learned.entmax.implicit import entmax

AtLeastOne = Annotated[float, AtLeast(1)]
Alpha: TypeAlias = AtLeastOne | Tensor
"""α of all heads, or a tensor (h,) with that of each."""

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, *,
    alpha: Alpha = 1.5, mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, dense. ``alpha`` is one number or, as (h,), that of each head."""
    scores, allowed = _scores(q, k, mask, bias, scale)
    z, alpha = definition.shifted(scores, allowed), _of_heads(alpha, q)
    if isinstance(alpha, Tensor) or alpha not in (1.5, 2):
        return _mean(definition.by_bisection(z, alpha), v)
    return _mean(definition.by_sorting(z, alpha), v)


# ---- implicit


@form(autocast=True)
def implicit(
    q: Queries, k: Keys, v: Values, *,
    alpha: Alpha = 1.5, mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """``naive`` by Newton's method, with the first derivatives of the solution itself only."""
    scores, allowed = _scores(q, k, mask, bias, scale)
    return _mean(entmax(scores, _of_heads(alpha, q), allowed), v)


# ---- triton


@form(autocast=True)
def triton(
    q: Queries, k: Keys, v: Values, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """``naive`` for α = 1.5 with kernels for the weights. Raises ValueError where Triton cannot
    run."""
    entmax15 = kernels.kernel("entmax", "entmax15", q)
    scores, allowed = _scores(q, k, mask, bias, scale)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return _mean(entmax15(scores), v)


def _scores(
    q: Tensor, k: Tensor, mask: Mask, bias: Bias, scale: float | None
) -> tuple[Tensor, Tensor | None]:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    allowed = patterns.dense_of(mask, q, k)
    return note("scores", biased(q @ k.mT * scale, bias)), allowed


def _of_heads(alpha: Alpha, q: Tensor) -> float | Tensor:
    """α as (h, 1, 1), or the one number; noted as (h,)."""
    h = q.shape[1]
    if not isinstance(alpha, Tensor):
        note("alpha", lambda: torch.full((h,), float(alpha), device=q.device))
        return alpha
    if alpha.shape != (h,) or not alpha.is_floating_point():
        kind = "floats" if alpha.is_floating_point() else str(alpha.dtype).removeprefix("torch.")
        raise ValueError(
            f"alpha should be a number, or a tensor of floats ({h},) with that of each head, got "
            f"{kind} of shape {tuple(alpha.shape)}"
        )
    if alpha.device != q.device:
        raise ValueError(f"alpha is on {alpha.device}, but the queries are on {q.device}")
    if not is_abstract(alpha) and not bool((alpha >= 1).all()):
        raise ValueError(f"the alpha of a head should be at least 1, got {float(alpha.min())}")
    return note("alpha", alpha)[:, None, None]


def _mean(weights: Tensor, v: Tensor) -> Tensor:
    note("support", lambda: (weights > 0).sum(-1))
    return note("weights", weights) @ v


FORMS = {"naive": naive, "implicit": implicit}
KERNELS = {"triton": triton}

# ---- module


class EntmaxAttention(DenseAttention):
    """Multi-head attention with α-entmax weights: (b, n, dim) → (b, n, dim).

    With ``learn_alpha`` each head learns its α between 1 and 2, starting at ``alpha``.
    """

    one_softmax = False

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        alpha: AtLeastOne = 1.5, learn_alpha: bool = False, causal: bool = False,
        form: Literal["naive", "implicit", "triton"] = "implicit", bias: bool = False,
        positions: PositionScheme | None = None,
    ) -> None:  # fmt: skip
        by = {**FORMS, **KERNELS}[form]
        super().__init__(dim, heads, by, causal=causal, bias=bias, positions=positions)
        self.form, self.start = form, alpha
        if learn_alpha and not 1 < alpha < 2:
            raise ValueError(f"a learned alpha stays between 1 and 2 and starts there, got {alpha}")
        if form == "triton" and (learn_alpha or alpha != 1.5):
            got = "a learned one" if learn_alpha else alpha
            raise ValueError(f"the form triton has alpha = 1.5 alone, got {got}; take implicit")
        self.a = nn.Parameter(torch.full((heads,), _logit(alpha - 1))) if learn_alpha else None

    @property
    def alpha(self) -> Tensor | float:
        """The α of each head (h,), or the one of all."""
        return self.start if self.a is None else 1 + torch.sigmoid(upcast(self.a))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Bias) -> Tensor:
        of_layer = {} if self.form == "triton" else {"alpha": self.alpha}
        return self.attend(q, k, v, mask=mask, bias=bias, **of_layer)

    def extra_repr(self) -> str:
        alpha = f"alpha={self.start}" if self.a is None else f"alpha from {self.start}, learned"
        return f"{alpha}, causal={self.causal}, form={self.form!r}"


def _logit(x: float) -> float:
    return math.log(x / (1 - x))


# ---- card

h, n, m, d, e = letters("h n m d e")
SEEN = ("scores", "alpha", "weights", "support")

CARD = Card(
    __doc__,
    name="entmax",
    family="learned",
    role="attend",
    forms=FORMS,
    kernels=KERNELS,
    causal="optional",
    time=2 * h * n * m * (d + e),
    memory=h * n * m,
    notes={**dict.fromkeys(FORMS, SEEN), "triton": ("scores", "weights", "support")},
    variants=({"alpha": 1.2, "learn_alpha": True},),
    build=EntmaxAttention,
    aliases=("sparsemax", "adaptively_sparse"),
)
