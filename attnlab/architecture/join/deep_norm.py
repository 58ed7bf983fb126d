r"""DeepNorm: post-norm with a larger stream and smaller initial weights, for very deep models.

Post-norm divides both parts of the sum alike, $x \leftarrow \mathrm{LN}(x + f(x))$, so that after
some dozens of sublayers little is left of what came in, and the first updates of a deep model are
so large that it does not recover from them. DeepNorm gives the stream a factor $\alpha > 1$,

$$x \leftarrow \mathrm{LN}(\alpha x + f(x)),$$

and begins with the value and output matrices of attention and both matrices of the feed-forward
layer multiplied by $\beta < 1$ (queries and keys as they are). The two are chosen so that the size
of one update of the whole model does not depend on its depth. With N layers in the encoder and M
in the decoder:

| | encoder: α, β | decoder: α, β |
| --- | --- | --- |
| encoder alone | (2N)^(1/4), (8N)^(-1/4) | |
| decoder alone | | (2M)^(1/4), (8M)^(-1/4) |
| both | 0.81 (N⁴M)^(1/16), 0.87 (N⁴M)^(-1/16) | (3M)^(1/4), (12M)^(-1/4) |

One stack alone, and the decoder beside an encoder, have $\alpha\beta = 1/\sqrt 2$ at every depth;
the encoder beside a decoder has 0.705. The decoder has three sublayers in a layer, hence its 3.

Cost: one multiplication for each element of the stream more than post-norm.

``naive``  the equation.

Common mistakes: β on queries and keys too; the constants of one stack in an encoder-decoder; the
number of sublayers in the place of the number of layers.

Departures.
- matrices begin as their layers make them, times β, as in the authors' library TorchScale; the
  paper draws them from a normal distribution with Glorot's variance times β²

Wang, Ma, Dong, Huang, Zhang, Wei. DeepNet: Scaling Transformers to 1,000 Layers. arXiv 2022,
arXiv:2203.00555, section 2 and Figure 2.
"""

import sympy
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.branches import (
    Side,
    Sublayer,
    check_side,
    layers_of_stack,
    passing_matrices,
)
from attnlab.core.card import Card, letters
from attnlab.core.claims import Join
from attnlab.core.norms import Norm, norm_of
from attnlab.core.options import Size

# ---- helpers


def constants(layers: int, side: Side = "alone", others: int | None = None) -> tuple[float, float]:
    """α and β of a stack of so many layers; ``others`` are those of the other stack, by default as
    many."""
    check_side(side, others)
    others = layers if others is None else others
    if side == "alone":
        return (2 * layers) ** 0.25, (8 * layers) ** -0.25
    if side == "decoder":
        return (3 * layers) ** 0.25, (12 * layers) ** -0.25
    both = (layers**4 * others) ** (1 / 16)
    return 0.81 * both, 0.87 / both


# ---- forms


def naive(x: Tensor, f: Sublayer, norm: Sublayer, alpha: float) -> Tensor:
    """The equation: norm(α x + f(x))."""
    return norm(alpha * x + f(x))


FORMS = {"naive": naive}

# ---- module


class DeepNorm(nn.Module):
    """The norm after a sublayer on α times the stream.

    layers: of its stack. side: which stack, "alone", "encoder" or "decoder". others: layers of the
        other stack of an encoder-decoder, as many if not given.
    dropout: on what the sublayer adds.
    norm: "layer_norm", "rms_norm" or "no_norm" (``attnlab.core.norms``).
    """

    def __init__(
        self, dim: Size, layers: Size | None = None, side: Side = "alone",
        others: Size | None = None, dropout: float = 0.0, norm: Norm = "layer_norm",
    ) -> None:  # fmt: skip
        super().__init__()
        self.alpha, self.beta = constants(layers_of_stack("deep_norm", layers), side, others)
        self.norm, self.normalised = norm_of(norm, dim), norm != "no_norm"
        self.dropout = dropout

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:.4g}, beta={self.beta:.4g}"

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        dropped = lambda read: F.dropout(f(read), self.dropout, self.training)  # noqa: E731
        return naive(x, dropped, self.norm, self.alpha)

    def initialise(self, sublayer: nn.Module, branches: int) -> None:
        """Multiply the sublayer's matrices, queries and keys apart, by β."""
        for matrix in passing_matrices(sublayer):
            matrix.data.mul_(self.beta)


# ---- card

(L,) = letters("L")
alpha, beta = sympy.symbols("alpha beta", positive=True)

CARD = Card(
    __doc__,
    name="deep_norm",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(
        variance=sympy.Integer(1),
        gradient=sympy.Integer(1),
        around=(1 + beta**4 / alpha**2) ** (-(L - 1) / 2),
    ),
    build=DeepNorm,
    variants=({"norm": "rms_norm"}, {"norm": "no_norm"}),
    aliases=("deepnorm", "deepnet"),
    demo="""
    >>> join = attnlab.build("deep_norm", dim=64, layers=100)
    >>> round(join.alpha, 2)  # the fourth root of 200
    3.76
    >>> x = torch.randn(4, 100, 64)
    >>> for _ in range(100):  # sublayers that add noise of variance 1
    ...     x = join(x, torch.randn_like)
    >>> round(x.var().item(), 2)
    1.0
    """,
)
