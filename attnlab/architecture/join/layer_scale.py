r"""LayerScale: pre-norm, each channel of what a sublayer adds times a learned small number.

$$x \leftarrow x + \mathrm{diag}(\lambda_1, \dots, \lambda_{dim})\, f(\mathrm{LN}(x)),
  \qquad \lambda_i = \varepsilon \text{ before training}$$

A deep stack begins near the identity, as with one number that begins at zero (``rezero``), but
every channel learns its own factor, the norms stay, and the weights inside a sublayer have a
gradient from the first step on. The stream has the variance $1 + \varepsilon^2 L$ after L
sublayers.

Cost: one multiplication for each element of the stream more than pre-norm.

``naive``  the equation.

Common mistakes: weight decay on λ; the same ε for every depth.

Departures.
- the paper has no rule for ε between the depths that it trains; here it is 0.1 up to 18 layers,
  1e-5 up to 24, and 1e-6 beyond

Touvron, Cord, Sablayrolles, Synnaeve, Jégou. Going Deeper with Image Transformers. ICCV 2021,
arXiv:2103.17239, section 2.
"""

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.branches import Sublayer, layers_of_stack
from attnlab.core.card import Card, letters
from attnlab.core.claims import Join
from attnlab.core.norms import Norm, norm_of
from attnlab.core.options import Size

# ---- helpers


def epsilon_for(layers: int) -> float:
    """The initial factor of a stack of so many layers."""
    return 0.1 if layers <= 18 else 1e-5 if layers <= 24 else 1e-6


# ---- forms


def naive(x: Tensor, f: Sublayer, norm: Sublayer, scale: Float[Tensor, "dim"]) -> Tensor:
    """The equation: x + λ ⊙ f(norm(x))."""
    return x + scale * f(norm(x))


FORMS = {"naive": naive}

# ---- module


class LayerScale(nn.Module):
    """Pre-norm with a factor for each channel of what the sublayer adds.

    layers: of its stack, from which ``epsilon`` follows if that is not given.
    epsilon: the factors before training, more than 0 and at most 1.
    dropout: on what the sublayer adds.
    norm: "layer_norm", "rms_norm" or "no_norm" (``attnlab.core.norms``).
    """

    normalised = False

    def __init__(
        self, dim: Size, layers: Size | None = None, epsilon: float | None = None,
        dropout: float = 0.0, norm: Norm = "layer_norm",
    ) -> None:  # fmt: skip
        super().__init__()
        if epsilon is None:
            epsilon = epsilon_for(layers_of_stack("layer_scale", layers))
        if not 0 < epsilon <= 1:
            raise ValueError(
                "epsilon should be more than 0 and at most 1, where a sublayer counts in full, got "
                f"{epsilon}; join='rezero' begins at 0"
            )
        self.epsilon, self.dropout = epsilon, dropout
        self.norm = norm_of(norm, dim)
        self.scale = nn.Parameter(torch.full((dim,), epsilon))

    def extra_repr(self) -> str:
        return f"epsilon={self.epsilon:g}"

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        dropped = lambda read: F.dropout(f(read), self.dropout, self.training)  # noqa: E731
        return naive(x, dropped, self.norm, self.scale)

    def branch(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        """What is added to the stream."""
        return self.scale * F.dropout(f(self.norm(x)), self.dropout, self.training)

    def initialise(self, sublayer: nn.Module, branches: int) -> None:
        """The sublayer stays as it is: ε makes it small."""


# ---- card

(L,) = letters("L")
epsilon = sympy.Symbol("epsilon", positive=True)

CARD = Card(
    __doc__,
    name="layer_scale",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(
        variance=1 + epsilon**2 * L,
        gradient=sympy.sqrt((1 + epsilon**2 * L) / (1 + epsilon**2)),
        around=sympy.Integer(1),
    ),
    build=LayerScale,
    variants=({"norm": "rms_norm"}, {"norm": "no_norm", "epsilon": 0.1}),
    aliases=("layerscale",),
    demo="""
    >>> join, x = attnlab.build("layer_scale", dim=64, epsilon=1e-4), torch.randn(1, 10, 64)
    >>> (join(x, torch.ones_like) - x).abs().max().item() < 2e-4  # nearly nothing is added
    True
    """,
)
