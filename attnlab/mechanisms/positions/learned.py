r"""Learned positions: a table with a vector for each position, added to the token's.

$$x_i = E_{w_i} + P_i$$

Nothing tells the model that two positions are neighbours: any such relation has to be learned. A
position beyond the table has no vector, so the longest sequence is decided when the model is built.

Cost: $n\,\mathrm{dim}$ additions; max_len · dim parameters.

``naive``   the equation.

Gehring, Auli, Grangier, Yarats, Dauphin. Convolutional Sequence to Sequence Learning. ICML 2017,
arXiv:1705.03122, section 3.1; used by BERT and GPT.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.lookup import rows_of
from attnlab.core.options import Size
from attnlab.core.positions import Positions
from attnlab.core.shapes import checked

# ---- naive


@checked
def naive(
    x: Float[Tensor, "b n dim"], positions: Positions, weight: Float[Tensor, "p dim"]
) -> Float[Tensor, "b n dim"]:
    """Tokens plus the vectors of their positions (Gehring et al., section 3.1)."""
    return x + rows_of(weight, positions, "positions", "the table ends at max_len")


FORMS = {"naive": naive}

# ---- module


class LearnedPositions(nn.Module):
    """Adds learned vectors to tokens (b, n, dim): max_len · dim parameters.

    ``std`` is the standard deviation of the vectors before training.
    """

    @checked
    def __init__(self, dim: Size, *, max_len: Size = 256, std: float = 0.02) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_len, dim) * std)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], positions: Positions
    ) -> Float[Tensor, "b n dim"]:
        return naive(x, positions, self.weight)

    def extra_repr(self) -> str:
        return f"max_len={len(self.weight)}, dim={self.weight.shape[1]}"


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="learned",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="optional",
    time=n * dim,
    memory=n * dim,
    variants=({"max_len": 300},),
    build=LearnedPositions,
)
