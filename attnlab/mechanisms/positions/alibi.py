r"""Attention with linear biases (ALiBi): the score of a key falls linearly with its distance.

No position is added to any vector. Instead each head subtracts from every score the distance of the
two tokens times a slope of its own:

$$s_{ij} = \frac{q_i \cdot k_j}{\sqrt d} - m_h\, |i - j|,\qquad m_h = 2^{-8h/H},\quad h = 1 \ldots
H$$

The slopes are a geometric sequence and are not trained. Heads with steep slopes attend to the
last few tokens only, those with flat ones to hundreds, and nothing new happens at distances beyond
those of training: a model trained on short sequences can be run on longer ones. For a number of
heads H that is no power of two, the slopes are those of the power of two below, followed by every
second slope of twice that power.

In a causal layer $-m_h (i - j)$ and $m_h\, j$ give the same weights: a softmax does not change when
a whole row is moved by a constant.

Cost: $H (n + m)$ biases, one per head and distance; no parameters.

``naive``   the equation, for each pair of positions.

The paper's letters: $m$ is the slope, $n$ the number of heads.

The traps: the bias is added after the division by $\sqrt d$; the slopes of 12 heads are not
$2^{-8h/12}$; in half precision large distances times a slope round by more than the slope (here
they are computed in float32).

Departures.
- in layers that are not causal the bias is the same on both sides. The paper is about causal
  layers.

Press, Smith, Lewis. Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation. ICLR 2022, arXiv:2108.12409, section 3.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.options import Size
from attnlab.core.positions import DistanceBias
from attnlab.core.precision import like_buffer
from attnlab.core.shapes import checked

# ---- naive


@checked
def naive(
    i: Int[Tensor, "... n"], j: Int[Tensor, "... m"], slopes: Float[Tensor, "h"]
) -> Float[Tensor, "... h n m"]:
    """The bias of each pair of positions (Press et al., section 3)."""
    distance = (i[..., None, :, None] - j[..., None, None, :]).abs()
    return -slopes[:, None, None] * distance


@checked
def slopes(heads: Size, dtype: torch.dtype | None = None) -> Float[Tensor, "h"]:
    """The slope of each head, in score per position."""
    power = 2 ** math.floor(math.log2(heads))
    steps = 8 * torch.arange(1, power + 1, dtype=torch.float64) / power
    between = 4 * (2 * torch.arange(heads - power, dtype=torch.float64) + 1) / power
    return (2.0 ** -torch.cat((steps, between))).to(dtype or torch.get_default_dtype())


FORMS = {"naive": naive}

# ---- module


class LinearBiases(DistanceBias):
    """The biases of ``heads`` heads. No parameters.

    They have the dtype that a model is cast to, but stay in float32 where that is a half precision.
    """

    slopes: Tensor

    @checked
    def __init__(self, heads: Size) -> None:
        super().__init__()
        self.heads = heads
        self.register_buffer("slopes", slopes(heads), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LinearBiases":
        super()._apply(fn, recurse)
        self.slopes = like_buffer(slopes(self.heads, torch.float64), self.slopes)
        return self

    @checked
    def forward(
        self, i: Int[Tensor, "... n"], j: Int[Tensor, "... m"]
    ) -> Float[Tensor, "... h n m"]:
        return naive(i, j, self.slopes)


# ---- card

h, n, m = letters("h n m")

CARD = Card(
    __doc__,
    name="alibi",
    family="positions",
    role="bias",
    forms=FORMS,
    causal="optional",
    time=h * n * m,
    memory=h * n * m,
    build=LinearBiases,
)
