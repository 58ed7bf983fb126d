r"""Gated feed-forward layer: one product says what is added, a second how much of it.

The hidden layer of an MLP is a curve of one product. Here it is a product of two, of which only one
goes through a curve $g$:

$$y = W_2\,\bigl(g(W x) \odot V x\bigr)$$

With $V x$ a unit can be multiplied by any number, negative ones too; with $g(W x)$ it is opened or
closed. So a hidden unit is quadratic in $x$ where an MLP's is nearly linear. The names are those of
the curve:

| ``gate`` | g | name |
| --- | --- | --- |
| "sigmoid" | 1 / (1 + exp(−z)) | GLU (Dauphin et al., 2017, arXiv:1612.08083) |
| "relu" | max(z, 0) | ReGLU |
| "gelu" | z Φ(z) | GEGLU |
| "gelu_tanh" | z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2 | GEGLU as in T5 1.1 |
| "silu" | z / (1 + exp(−z)), Swish with β = 1 | SwiGLU |
| "none" | z | bilinear |

Three matrices in the place of two: to have as many parameters as an MLP whose hidden layer is four
times as wide as the stream, the hidden layer has two thirds of that width, 8 dim / 3. Compared at
one hidden width the gated layer has half as many parameters again, and the comparison is not fair.

Cost: 6 n dim f FLOPs for a hidden layer of width f: with f = 8 dim / 3 those of an MLP.

``naive``  the equation.

Common mistakes: the curve on the wrong product, as V and W look alike; the hidden width of an MLP,
which makes a larger model; comparing models of which only one has the two thirds.

Departures.
- the hidden width is rounded down to a whole number. Published models round it up to a multiple of
  some power of 2, which kernels like
- the output matrix begins smaller in a deep model, as in GPT-2

Shazeer. GLU Variants Improve Transformer. 2020, arXiv:2002.05202, equations 5 and 6.
"""

from functools import partial
from typing import Literal, TypeAlias, get_args

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.heads import check_input
from attnlab.core.options import Size, check_value
from attnlab.core.probe import note
from attnlab.core.shapes import checked

Gate: TypeAlias = Literal["silu", "sigmoid", "relu", "gelu", "gelu_tanh", "none"]
_GELU_TANH = partial(F.gelu, approximate="tanh")
_CURVES = (F.silu, F.sigmoid, F.relu, F.gelu, _GELU_TANH, lambda z: z)
CURVES = dict(zip(get_args(Gate), _CURVES, strict=True))

# ---- forms


@checked
def naive(
    x: Float[Tensor, "b n dim"],
    W: Float[Tensor, "f dim"],
    V: Float[Tensor, "f dim"],
    W_2: Float[Tensor, "dim f"],
    *,
    gate: Gate = "silu",
) -> Float[Tensor, "b n dim"]:
    """The equation: y = W₂ (g(W x) ⊙ V x)."""
    return gated(x @ W.mT, x @ V.mT, gate) @ W_2.mT


FORMS = {"naive": naive}


def gated(opened: Tensor, value: Tensor, gate: Gate) -> Tensor:
    """The hidden layer, g(opened) ⊙ value."""
    return note("gate", CURVES[gate](opened)) * value


# ---- module


class Gated(nn.Module):
    """Three linear layers without biases, the curve of one times another, then the third.

    gate: the curve: "silu" (SwiGLU), "sigmoid" (GLU), "relu" (ReGLU), "gelu" (GEGLU),
        "gelu_tanh", GELU by its approximation, or "none" (bilinear).
    hidden: width in between; not given, 8·dim / 3, rounded down.
    """

    def __init__(self, dim: Size, hidden: Size | None = None, gate: Gate = "silu") -> None:
        super().__init__()
        self.gate: Gate = check_value("gate", gate, Gate)
        hidden = max(1, 8 * dim // 3) if hidden is None else hidden
        self.opens = nn.Linear(dim, hidden, bias=False)
        self.expand = nn.Linear(dim, hidden, bias=False)
        self.contract = nn.Linear(hidden, dim, bias=False)

    def extra_repr(self) -> str:
        return f"gate={self.gate!r}"

    @checked
    def forward(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n dim"]:
        check_input(x, "x", self.expand.in_features, self.expand.weight)
        out: Tensor = self.contract(gated(self.opens(x), self.expand(x), self.gate))
        return out


# ---- card

n, dim, f = letters("n dim f")

CARD = Card(
    __doc__,
    name="gated",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(time=6 * n * dim * f, parameters=3 * dim * f),
    notes={"naive": ("gate",)},
    build=Gated,
    variants=(
        {"hidden": 13},
        *({"gate": gate} for gate in ("sigmoid", "relu", "gelu", "gelu_tanh", "none")),
    ),
    aliases=("swiglu",),
    demo="""
    >>> layer = attnlab.build("gated", dim=64)
    >>> sum(p.numel() for p in layer.parameters())  # three matrices; an MLP's two have as many
    32640
    >>> closed = torch.nn.init.zeros_(layer.opens.weight)
    >>> layer(torch.randn(1, 5, 64)).abs().max().item()  # a closed gate lets nothing pass
    0.0
    """,
)
