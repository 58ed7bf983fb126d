r"""Sandwich: products of sinusoids as biases. The sinusoids are those of two positions.

The sinusoids that the first Transformers add to their tokens have products that depend on the
distance alone. Sandwich keeps only these products, drops the sinusoids from the tokens, and gives
each head its own strength:

$$s_{ij} = \frac{q_i \cdot k_j}{\sqrt d} + \frac{H}{8h}\, p_i \cdot p_j,\qquad p_i \cdot p_j =
\sum_{t < w/2} \cos\!\left((i - j)\, 10000^{-2t/w}\right),\quad h = 1 \ldots H$$

The bias is largest at distance 0 and falls, roughly as a logarithm, with small waves. Nothing is
learned; the width w of the sinusoids need not be that of the model.

Cost: no parameters; $w\,(n + m)$ cosines for all distances.

``naive``   the equation, for each pair of positions.

The paper's letters: $\bar d$ is w, the ``width``.

Chi, Fan, Rudnicky, Ramadge. Dissecting Transformer Length Extrapolation via the Lens of Receptive
Field Analysis. ACL 2023, arXiv:2212.10356, section 6.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.options import Options, Size
from attnlab.core.positions import DistanceBias
from attnlab.core.precision import exact_dtype, like_buffer
from attnlab.core.shapes import checked

WIDEST = 2**16
"""The largest width: each distance takes w / 2 cosines."""


@dataclass(frozen=True, kw_only=True)
class SandwichOptions(Options):
    """The sinusoids whose products are the biases.

    ``width``  how many they are, a sine and a cosine of each frequency; even.
    """

    width: Size = 128

    def check(self) -> None:
        if self.width % 2:
            raise ValueError(f"width should be even, a sine and a cosine each, got {self.width}")
        if self.width > WIDEST:
            raise ValueError(f"width should be at most {WIDEST}, got {self.width}")


# ---- naive


@checked
def naive(
    i: Int[Tensor, "... n"], j: Int[Tensor, "... m"], strengths: Float[Tensor, "h"],
    *, options: SandwichOptions = SandwichOptions(),
) -> Float[Tensor, "... h n m"]:  # fmt: skip
    """The bias of each pair of positions (Chi et al., eq. 6)."""
    distance = (i[..., :, None] - j[..., None, :])[..., None]
    t = torch.arange(0, options.width, 2, device=i.device, dtype=exact_dtype(i.device))
    products = (distance * 10000.0 ** (-t / options.width)).cos().sum(-1)
    return strengths[:, None, None] * products[..., None, :, :].to(strengths.dtype)


FORMS = {"naive": naive}

# ---- module


class SandwichBiases(DistanceBias):
    """The biases of ``heads`` heads. No parameters.

    They have the dtype that a model is cast to, but stay in float32 where that is a half precision.
    """

    strengths: Tensor

    @checked
    def __init__(self, heads: Size, *, options: SandwichOptions = SandwichOptions()) -> None:
        super().__init__()
        self.heads, self.options = heads, options
        self.register_buffer("strengths", self._exact().to(torch.get_default_dtype()), False)

    def _exact(self) -> Tensor:
        return self.heads / (8 * torch.arange(1, self.heads + 1, dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SandwichBiases":
        super()._apply(fn, recurse)
        self.strengths = like_buffer(self._exact(), self.strengths)
        return self

    @checked
    def forward(
        self, i: Int[Tensor, "... n"], j: Int[Tensor, "... m"]
    ) -> Float[Tensor, "... h n m"]:
        return naive(i, j, self.strengths, options=self.options)


# ---- card

h, n, m, w = letters("h n m w")

CARD = Card(
    __doc__,
    name="sandwich",
    family="positions",
    role="bias",
    forms=FORMS,
    causal="optional",
    options=SandwichOptions,
    letters={"w": "width"},
    time=n * m * (w + h),
    memory=n * m * (w / 2 + h),
    variants=({"width": 6},),
    build=SandwichBiases,
)
