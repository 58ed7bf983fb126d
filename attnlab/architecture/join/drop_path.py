r"""Drop path: in training each sublayer is left out at random, for each sequence alone.

Stochastic depth on a pre-norm stream. With a keep probability $1 - p$ and one random bit $b$ for
each sequence and sublayer,

$$x \leftarrow x + \frac{b}{1 - p}\, f(\mathrm{LN}(x)),\qquad b \sim \mathrm{Bernoulli}(1 - p)$$

in training, and $x + f(\mathrm{LN}(x))$ afterwards. The factor makes what is added the same in
expectation. A model of L layers is so trained as many shallower ones, and the gradient has shorter
ways. Later layers are dropped more often: layer l of L (from 1) with $p_l = p\, l / L$, as early
layers make what all others read.

Cost: none; the dropped sublayers are computed as well, since other sequences of the batch need
them.

``naive``  the equation, with the bits as an argument.

Common mistakes: one bit for the whole batch; one bit for each element, which is dropout; a factor
at test as well as in training.

Departures.
- the paper multiplies by 1 - p at test, where we divide by it in training, as is common today
- the paper drops the layers of a residual network of convolutions; here it is each of the two
  sublayers of a layer

Huang, Sun, Liu, Sedra, Weinberger. Deep Networks with Stochastic Depth. ECCV 2016,
arXiv:1603.09382, section 3.
"""

import sympy
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.branches import Shrinking, Sublayer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Join
from attnlab.core.norms import Norm, norm_of
from attnlab.core.options import Count, Size

# ---- forms


def naive(x: Tensor, f: Sublayer, norm: Sublayer, kept: Float[Tensor, "b 1 1"], p: float) -> Tensor:
    """The equation: x + b f(norm(x)) / (1 - p)."""
    return x + kept * f(norm(x)) / (1 - p)


FORMS = {"naive": naive}

# ---- module


class DropPath(Shrinking):
    """Pre-norm that leaves out a sublayer with a probability that grows with its depth.

    rate: the probability in the last layer, 0 ≤ rate < 1.
    layers, layer: of the stack, and which of them this is, from 0; on its own it drops with
        ``rate``.
    dropout: on what the sublayer adds.
    norm: "layer_norm", "rms_norm" or "no_norm" (``attnlab.core.norms``).
    shrink: begin with the last matrix of each sublayer divided by √L, for L sublayers.
    """

    normalised = False

    def __init__(
        self, dim: Size, rate: float = 0.1, layers: Size = 1, layer: Count | None = None,
        dropout: float = 0.0, norm: Norm = "layer_norm", shrink: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"rate is a probability, 0 ≤ rate < 1, got {rate}")
        layer = layers - 1 if layer is None else layer
        if layer >= layers:
            raise ValueError(f"layer counts from 0 to layers - 1 = {layers - 1}, got {layer}")
        self.rate = rate * (layer + 1) / layers
        self.norm, self.shrink, self.dropout = norm_of(norm, dim), shrink, dropout

    def extra_repr(self) -> str:
        return f"rate={self.rate:.3g}"

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        return x + self.branch(x, f)

    def branch(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        """What is added to the stream, nothing for the sequences that leave the sublayer out."""
        added = F.dropout(f(self.norm(x)), self.dropout, self.training)
        if not self.training or self.rate == 0:
            return added
        keep = 1 - self.rate
        return added * torch.bernoulli(x.new_full((x.shape[0], 1, 1), keep)) / keep


# ---- card

(L,) = letters("L")

CARD = Card(
    __doc__,
    name="drop_path",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(variance=1 + L, gradient=sympy.sqrt((1 + L) / 2), around=sympy.Integer(1)),
    build=DropPath,
    variants=({"norm": "rms_norm", "rate": 0.5}, {"norm": "no_norm", "shrink": False}),
    aliases=("stochastic_depth",),
    demo="""
    >>> join = attnlab.build("drop_path", dim=8, rate=0.5).train()
    >>> x = torch.randn(1000, 1, 8)
    >>> same = (join(x, torch.ones_like) == x).all(-1).float().mean().item()
    >>> 0.4 < same < 0.6  # of half of the sequences the sublayer is left out
    True
    >>> (join.eval()(x, torch.ones_like) == x).any().item()
    False
    """,
)
