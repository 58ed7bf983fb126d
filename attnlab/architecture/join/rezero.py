r"""ReZero: what a sublayer adds is multiplied by one learned number that begins at zero.

$$x \leftarrow x + \alpha f(x),\qquad \alpha = 0 \text{ before training}$$

Every stack begins as the identity, whatever its depth: the stream keeps its variance, and the
gradient comes back unchanged. There are no norms on the stream. In the first step only the numbers
$\alpha$ learn, as the weights inside a sublayer get the gradient times $\alpha$; from the second
step on everything does.

Cost: one multiplication for each element of the stream; no norms in front of sublayers.

``naive``  the equation.

Common mistakes: sublayers whose last matrix begins at zero as well, so that neither this matrix nor
α ever gets a gradient; weight decay on α.

Departures.
- one α for each sublayer; the paper has one for each layer, which attention and the feed-forward
  layer share
- a stack ends with a layer norm, as with pre-norm; the paper's has none

Bachlechner, Majumder, Mao, Cottrell, McAuley. ReZero is All You Need: Fast Convergence at Large
Depth. UAI 2021, arXiv:2003.04887, sections 3 and 5.
"""

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.branches import Sublayer
from attnlab.core.card import Card
from attnlab.core.claims import Join

# ---- forms


def naive(x: Tensor, f: Sublayer, alpha: Tensor) -> Tensor:
    """The equation: x + α f(x)."""
    return x + alpha * f(x)


FORMS = {"naive": naive}

# ---- module


class ReZero(nn.Module):
    """A number in front of what the sublayer adds, and dropout on it."""

    normalised = False

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(()))
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        return naive(x, lambda read: F.dropout(f(read), self.dropout, self.training), self.alpha)

    def branch(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        """What is added to the stream."""
        return self.alpha * F.dropout(f(x), self.dropout, self.training)

    def initialise(self, sublayer: nn.Module, branches: int) -> None:
        """The sublayer stays as it is: α = 0 is the whole initialisation."""


# ---- card

CARD = Card(
    __doc__,
    name="rezero",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(variance=sympy.Integer(1), gradient=sympy.Integer(1), around=sympy.Integer(1)),
    build=ReZero,
    aliases=("re_zero",),
    demo="""
    >>> join, x = attnlab.build("rezero"), torch.randn(1, 10, 64)
    >>> torch.equal(join(x, torch.randn_like), x)  # before training nothing is added
    True
    >>> join(x, torch.ones_like).sum().backward()
    >>> join.alpha.grad.item()  # but what is added can grow: one for each of 640 numbers
    640.0
    """,
)
