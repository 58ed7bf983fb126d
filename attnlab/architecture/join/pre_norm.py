r"""Pre-norm: a sublayer reads the normalised stream, and adds to the stream as it is.

A sublayer $f$ (attention, feed-forward layer) stands on a residual stream $x$:

$$x \leftarrow x + f(\mathrm{LN}(x))$$

From the last layer to the first, a sum passes the gradient on unchanged, so deep models train
without a warm-up of the learning rate. The price: if each sublayer adds a variance of 1, the
stream has the variance 1 + L after L of them, so later layers change it less and less, and the
stack ends with a norm of its own.

Common mistakes: a stack without its last norm; dropout on the stream in the place of what is added.

Departures.
- the last matrix of each sublayer begins divided by √L for L sublayers, as in GPT-2 (Radford et
  al., 2019), so that the stream of a model begins with a variance that its depth does not change

Xiong, Yang, He, Zheng, Zheng, Xing, Zhang, Lan, Wang, Liu. On Layer Normalization in the
Transformer Architecture. ICML 2020, arXiv:2002.04745.
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
    """The equation: x + f(norm(x))."""
    return x + f(norm(x))


FORMS = {"naive": naive}

# ---- module


class PreNorm(Shrinking):
    """The norm in front of a sublayer, and dropout on what the sublayer adds.

    norm: "layer_norm", "rms_norm" or "no_norm" (``attnlab.core.norms``).
    shrink: begin with the last matrix of each sublayer divided by √L, for L sublayers.
    epsilon: what the norm adds to the variance, 1e-5 if not given.
    """

    normalised = False

    def __init__(
        self, dim: Size, dropout: float = 0.0, norm: Norm = "layer_norm", shrink: bool = True,
        epsilon: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm, self.shrink = norm_of(norm, dim, epsilon), shrink
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        return naive(x, lambda read: self._dropped(f(read)), self.norm)

    def branch(self, x: Float[Tensor, "b n dim"], f: Sublayer) -> Float[Tensor, "b n dim"]:
        """What is added to the stream."""
        return self._dropped(f(self.norm(x)))

    def _dropped(self, out: Tensor) -> Tensor:
        return F.dropout(out, self.dropout, self.training)


# ---- card

(L,) = letters("L")

CARD = Card(
    __doc__,
    name="pre_norm",
    family="join",
    role="join",
    forms=FORMS,
    claims=Join(variance=1 + L, gradient=sympy.sqrt((1 + L) / 2), around=sympy.Integer(1)),
    build=PreNorm,
    variants=(
        {"norm": "rms_norm"},
        {"norm": "no_norm", "shrink": False},
        {"norm": "rms_norm", "epsilon": 1e-6},
    ),
    aliases=("pre",),
    demo="""
    >>> join, x = attnlab.build("pre_norm", dim=64), torch.randn(4, 100, 64)
    >>> for _ in range(100):  # sublayers that add noise of variance 1
    ...     x = join(x, torch.randn_like)
    >>> round(x.var().item(), -1)
    100.0
    """,
)
