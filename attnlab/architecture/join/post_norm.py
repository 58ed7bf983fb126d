r"""Post-norm: the stream is normalised after each sublayer has added to it.

The order of the first transformer:

$$x \leftarrow \mathrm{LN}(x + f(x))$$

The stream has the variance 1 after every sublayer, so every layer counts alike, and the last one
needs no norm after it. The price: on its way to the first layer the gradient goes through every
norm. Where sublayers pass little gradient on, each norm divides it by about √2, and deep models
train only with a warm-up of the learning rate (Xiong et al., ICML 2020, arXiv:2002.04745).

Common mistakes: one more norm after the last layer; a norm of f(x) in the place of the sum.

Departures.
- the last matrix of each sublayer begins divided by √L for L sublayers, as with pre-norm

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin. Attention Is All You Need.
NeurIPS 2017, arXiv:1706.03762, section 3.1.
"""

import sympy
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.branches import Shrinking, Sublayer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Join
from attnlab.core.norms import Norm, norm_of
from attnlab.core.options import Size

# ---- forms


def naive(x: Tensor, f: Sublayer, norm: Sublayer) -> Tensor:
    """The equation: norm(x + f(x))."""
    return norm(x + f(x))


FORMS = {"naive": naive}

# ---- module


class PostNorm(Shrinking):
    """The norm after a sublayer, and dropout on what the sublayer adds.

    norm: "layer_norm", "rms_norm" or "no_norm" (``attnlab.core.norms``).
    shrink: begin with the last matrix of each sublayer divided by √L, for L sublayers.
    """

    def __init__(
        self, dim: Size, dropout: float = 0.0, norm: Norm = "layer_norm", shrink: bool = True
    ) -> None:
        super().__init__()
        self.norm, self.shrink = norm_of(norm, dim), shrink
        self.dropout, self.normalised = dropout, norm != "no_norm"

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        return naive(x, lambda read: F.dropout(f(read), self.dropout, self.training), self.norm)


# ---- card

(L,) = letters("L")

CARD = Card(
    __doc__,
    name="post_norm",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(
        variance=sympy.Integer(1), gradient=sympy.Integer(1), around=sympy.sqrt(2) ** (1 - L)
    ),
    build=PostNorm,
    variants=({"norm": "rms_norm"}, {"norm": "no_norm", "shrink": False}),
    aliases=("post",),
    demo="""
    >>> join, x = attnlab.build("post_norm", dim=64), torch.randn(4, 100, 64)
    >>> for _ in range(100):  # sublayers that add noise of variance 1
    ...     x = join(x, torch.randn_like)
    >>> round(x.var().item(), 2)
    1.0
    """,
)
