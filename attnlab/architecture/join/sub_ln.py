r"""Sub-LN: pre-norm with a second norm inside each sublayer, in front of its last matrix.

Under pre-norm what a sublayer adds can grow with its matrices, and in deep models it does. Sub-LN
(the join of the Magneto architecture) normalises once more, after attention has mixed the values
and after the curve of the feed-forward layer:

$$x \leftarrow x + W_O\,\mathrm{LN}(\mathrm{attn}(\mathrm{LN}(x))),\qquad
  x \leftarrow x + W_2\,\mathrm{LN}(\mathrm{gelu}(W_1 \mathrm{LN}(x)))$$

What is added then depends on the size of the last matrix alone. The value and output matrices of
attention and both matrices of the feed-forward layer begin multiplied by a gain $\gamma$, for which
the size of an update of the model grows slowly with N layers in the encoder and M in the decoder:

| | encoder | decoder |
| --- | --- | --- |
| one stack alone | √ln 2N | √ln 2M |
| both | √(⅓ ln 3M · ln 2N) | √ln 3M |

Cost: one norm more in each sublayer; that of a feed-forward layer is as wide as its hidden layer.

``naive``  the equation, the sublayer without its last matrix.

Common mistakes: the inner norm behind the last matrix; the gain on queries and keys.

Departures.
- matrices begin as their layers make them, times γ, as in the authors' library TorchScale; the
  paper draws them with Glorot's variance times γ²
- cross-attention gets neither the inner norm nor the gain, as in TorchScale

Wang, Ma, Huang, Dong, Wang, Peng, Wu, Bajaj, Singhal, Benhaim, Patra, Liu, Chaudhary, Song, Wei.
Foundation Transformers. ICML 2023, arXiv:2210.06423, sections 2 and 3.
"""

import math

import sympy
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.branches import (
    Side,
    Sublayer,
    check_side,
    layers_of_stack,
    norm_last_matrices,
    passing_matrices,
)
from attnlab.core.card import Card, letters
from attnlab.core.claims import Join
from attnlab.core.norms import Norm, Normed, norm_of
from attnlab.core.options import Size

# ---- helpers


def gain(layers: int, side: Side = "alone", others: int | None = None) -> float:
    """γ of a stack of so many layers; ``others`` are those of the other stack, by default as
    many."""
    check_side(side, others)
    others = layers if others is None else others
    if side == "alone":
        return math.sqrt(math.log(2 * layers))
    if side == "decoder":
        return math.sqrt(math.log(3 * layers))
    return math.sqrt(math.log(3 * others) * math.log(2 * layers) / 3)


# ---- forms


def naive(x: Tensor, f: Sublayer, norm: Sublayer, inner: Sublayer, W: Tensor) -> Tensor:
    """The equation: x + W inner(f(norm(x))), W the last matrix of the sublayer and f the rest."""
    return x + inner(f(norm(x))) @ W.mT


FORMS = {"naive": naive}

# ---- module


class SubLN(nn.Module):
    """A norm in front of a sublayer, and one in front of its last matrix.

    layers: of its stack. side: which stack, "alone", "encoder" or "decoder". others: layers of the
        other stack of an encoder-decoder, as many if not given.
    dropout: on what the sublayer adds.
    norm: "layer_norm", "rms_norm" or "no_norm" (``attnlab.core.norms``), of both.
    """

    normalised = False

    def __init__(
        self, dim: Size, layers: Size | None = None, side: Side = "alone",
        others: Size | None = None, dropout: float = 0.0, norm: Norm = "layer_norm",
    ) -> None:  # fmt: skip
        super().__init__()
        self.gain = gain(layers_of_stack("sub_ln", layers), side, others)
        self.norm, self.kind, self.dropout = norm_of(norm, dim), norm, dropout

    def extra_repr(self) -> str:
        return f"gain={self.gain:.4g}"

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        return x + self.branch(x, f)

    def branch(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        """What is added to the stream, of a sublayer that ``prepare`` has given its norm."""
        return F.dropout(f(self.norm(x)), self.dropout, self.training)

    def prepare(self, sublayer: nn.Module) -> None:
        """Put a norm in front of the sublayer's last matrix."""
        norm_last_matrices(sublayer, lambda width: norm_of(self.kind, width))

    def initialise(self, sublayer: nn.Module, branches: int) -> None:
        """Multiply the matrices by γ, unless the sublayer has no inner norm."""
        if any(isinstance(part, Normed) for part in sublayer.modules()):
            for matrix in passing_matrices(sublayer):
                matrix.data.mul_(self.gain)


# ---- card

(L,) = letters("L")
gamma = sympy.Symbol("gain", positive=True)

CARD = Card(
    __doc__,
    name="sub_ln",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(
        variance=1 + gamma**2 * L,
        gradient=sympy.sqrt((1 + gamma**2 * L) / (1 + gamma**2)),
        around=sympy.Integer(1),
    ),
    build=SubLN,
    variants=({"norm": "rms_norm"}, {"norm": "no_norm"}),
    aliases=("magneto",),
    demo="""
    >>> join, layer = attnlab.build("sub_ln", dim=64, layers=12), attnlab.build("mlp", dim=64)
    >>> join.prepare(layer)
    >>> [type(part).__name__ for part in layer.contract.children()]  # a norm in front
    ['LayerNorm', 'Linear']
    >>> round(join.gain, 2)  # √log 24
    1.78
    """,
)
