r"""Flattened feed-forward layer: as wide inside as outside, so that attention is most of the work.

An MLP widens the stream four times and costs 16 n dim² FLOPs. The attention beside it costs
8 n dim² for its four matrices and 4 n² dim for scores and sums, which is less until a sequence is
twice as long as the stream is wide. So whoever makes attention cheaper saves little of the whole:
at n = dim attention is 43 % of a layer. The wide hidden layer is a bottleneck of the other kind;
without it

$$y = W_2\, \mathrm{relu}(W_1 x + b_1) + b_2, \qquad W_1, W_2 \in \mathbb{R}^{dim \times dim}$$

costs 4 n dim² FLOPs, and attention is 75 % of a layer at n = dim. The parameters that are saved can
make the stream wider or the stack deeper. It is an ``mlp`` with hidden = dim and ReLU.

Cost: 4 n dim² FLOPs, a quarter of an MLP's.

``naive``  the equation.

Common mistakes: comparing two mechanisms by the time of a whole layer with a wide MLP, which hides
their difference; comparing a flat model with a wide one of the same number of layers, which has
more parameters.

Departures.
- long-short range attention, the other half of that paper, is no part of this page: half of the
  stream goes through attention and half through a convolution
- the output matrix begins smaller in a deep model, as in GPT-2

Wu, Liu, Lin, Lin, Han. Lite Transformer with Long-Short Range Attention. ICLR 2020,
arXiv:2004.11886, section 4.
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.heads import check_input
from attnlab.core.options import Size
from attnlab.core.shapes import checked

# ---- forms


@checked
def naive(
    x: Float[Tensor, "b n dim"],
    W_1: Float[Tensor, "dim dim"],
    b_1: Float[Tensor, "dim"],
    W_2: Float[Tensor, "dim dim"],
    b_2: Float[Tensor, "dim"],
) -> Float[Tensor, "b n dim"]:
    """The equation: y = W₂ relu(W₁ x + b₁) + b₂."""
    return F.relu(x @ W_1.mT + b_1) @ W_2.mT + b_2


FORMS = {"naive": naive}

# ---- module


class Flattened(nn.Module):
    """Two square linear layers with ReLU in between."""

    def __init__(self, dim: Size) -> None:
        super().__init__()
        self.expand, self.contract = nn.Linear(dim, dim), nn.Linear(dim, dim)
        nn.init.zeros_(self.expand.bias)
        nn.init.zeros_(self.contract.bias)

    @checked
    def forward(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n dim"]:
        check_input(x, "x", self.expand.in_features, self.expand.weight)
        out: Tensor = self.contract(F.relu(self.expand(x)))
        return out


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="flattened",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(time=4 * n * dim**2, parameters=2 * dim**2 + 2 * dim),
    build=Flattened,
    demo="""
    >>> def parameters(name):
    ...     return sum(p.numel() for p in attnlab.build(name, dim=64).parameters())
    >>> parameters("flattened"), parameters("mlp")
    (8320, 33088)
    """,
)
