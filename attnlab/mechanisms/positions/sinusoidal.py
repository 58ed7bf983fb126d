r"""Sinusoidal positions: each position has a vector of sines and cosines, added to the token's.

$$x_i = E_{w_i} + p_i,\qquad p_{i,\,2k} = \sin(i\,\omega_k),\quad p_{i,\,2k+1} =
\cos(i\,\omega_k),\qquad \omega_k = 10000^{-2k/\mathrm{dim}}$$

The frequencies run from one radian per position to one in ten thousand, so that near positions
differ in the first coordinates and far ones in the last. Moving on by t positions is a rotation of
each (sin, cos) pair, the same wherever one starts, and $p_i \cdot p_j = \sum_k \cos((i - j)\,
\omega_k)$ depends on the distance alone. There are no parameters and no largest position.

Cost: $2 n\,\mathrm{dim}$ sines, cosines and additions.

``naive``   the equation.

Other implementations. Well-known code writes all sines first, then all cosines: a permutation of
the coordinates.

Departures.
- tokens are not multiplied by √dim first. Section 3.4 of the paper multiplies them.

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin. Attention Is All You Need.
NeurIPS 2017, arXiv:1706.03762, section 3.5.
"""

from jaxtyping import Float
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import Positions, sinusoids
from attnlab.core.shapes import checked

# ---- naive


@checked
def naive(x: Float[Tensor, "b n dim"], positions: Positions) -> Float[Tensor, "b n dim"]:
    """Tokens plus the sinusoids of their positions (Vaswani et al., section 3.5)."""
    return x + sinusoids(positions, x.shape[-1]).to(x.dtype)


table = sinusoids

FORMS = {"naive": naive}

# ---- module


class SinusoidalPositions(Layer):
    """Adds sinusoids to tokens (b, n, dim). No parameters."""

    @checked
    def __init__(self, dim: Size) -> None:
        super().__init__()
        self.dim = dim

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], positions: Positions
    ) -> Float[Tensor, "b n dim"]:
        if x.shape[-1] != self.dim:
            raise ValueError(f"x should be vectors of width dim={self.dim}, got {x.shape[-1]}")
        return naive(x, positions)


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="sinusoidal",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="optional",
    time=2 * n * dim,
    memory=n * dim,
    build=SinusoidalPositions,
)
