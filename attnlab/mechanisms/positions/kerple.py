r"""KERPLE: kernels of the distance. Biases fall as fast as each head learns they should.

ALiBi subtracts the distance times a fixed slope. KERPLE learns two numbers per head, of a function
that is a conditionally positive definite kernel of the distance:

$$s_{ij} = \frac{q_i \cdot k_j}{\sqrt d} - r_1 \log(1 + r_2\, |i - j|) \qquad\text{or}\qquad
s_{ij} = \frac{q_i \cdot k_j}{\sqrt d} - r_1\, |i - j|^{r_2},\quad r_2 \le 2$$

The logarithmic form falls ever more slowly, so that far tokens keep some weight at any length; the
power form with $r_2 = 1$ is ALiBi with learned slopes. Adding a constant to a row of scores changes
no weight, which is why a conditionally positive definite kernel is enough.

Cost: 2 parameters per head; $H (n + m)$ biases, one per head and distance.

``naive``   the equation, for each pair of positions.

The paper's letters: $r_1, r_2$ are the rows of ``weight``; the forms are its "logarithmic" and
"power" variants.

Readings. A number below 0.001 is taken for 0.001; the released code takes 0.01, which is above
ALiBi's smallest slope. A gradient that leads back within passes.

Departures.
- the numbers start at fixed values, not at random ones. They start at 1, and the power form at
  ALiBi's slopes $r_1 = 2^{-8h/H}$ and $r_2 = 1$.

Chi, Fan, Ramadge, Rudnicky. KERPLE: Kernelized Relative Positional Embedding for Length
Extrapolation. NeurIPS 2022, arXiv:2205.09921, section 4.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.derivatives import within
from attnlab.core.options import Options, Size
from attnlab.core.positions import DistanceBias
from attnlab.core.precision import upcast
from attnlab.core.shapes import checked

SMALLEST = 0.001
"""The least that a learned number is taken for: the kernels need them above 0."""


@dataclass(frozen=True, kw_only=True)
class KerpleOptions(Options):
    """How the bias falls with the distance."""

    kernel: Literal["logarithmic", "power"] = "logarithmic"


# ---- naive


@checked
def naive(
    i: Int[Tensor, "... n"], j: Int[Tensor, "... m"], weight: Float[Tensor, "2 h"],
    *, options: KerpleOptions = KerpleOptions(),
) -> Float[Tensor, "... h n m"]:  # fmt: skip
    """The bias of each pair of positions (Chi et al., eq. 5 and 6)."""
    weight = upcast(weight)  # half precisions round large distances
    distance = (i[..., None, :, None] - j[..., None, None, :]).abs().to(weight.dtype)
    largest = 2 if options.kernel == "power" else float("inf")
    r1 = within(weight[0], SMALLEST, float("inf"))[..., None, None]
    r2 = within(weight[1], SMALLEST, largest)[..., None, None]
    if options.kernel == "logarithmic":
        return -r1 * torch.log1p(r2 * distance)
    power = distance.clamp(min=1) ** r2  # 0 ** r has no derivative in r
    return -r1 * power.masked_fill(distance == 0, 0)


FORMS = {"naive": naive}

# ---- module


class KernelBiases(DistanceBias):
    """The learned biases of ``heads`` heads: 2 · heads parameters."""

    @checked
    def __init__(self, heads: Size, *, options: KerpleOptions = KerpleOptions()) -> None:
        super().__init__()
        self.heads, self.options = heads, options
        scale = torch.ones(heads)
        if options.kernel == "power":
            scale = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
        self.weight = nn.Parameter(torch.stack((scale, torch.ones(heads))))

    @checked
    def forward(
        self, i: Int[Tensor, "... n"], j: Int[Tensor, "... m"]
    ) -> Float[Tensor, "... h n m"]:
        return naive(i, j, self.weight, options=self.options)


# ---- card

h, n, m = letters("h n m")

CARD = Card(
    __doc__,
    name="kerple",
    family="positions",
    role="bias",
    forms=FORMS,
    causal="optional",
    options=KerpleOptions,
    time=h * n * m,
    memory=h * n * m,
    variants=({"kernel": "power"},),
    build=KernelBiases,
)
