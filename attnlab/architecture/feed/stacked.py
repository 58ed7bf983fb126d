r"""Stacked feed-forward layers: several narrow ones after each other, each on the sum so far.

Where attention has been made narrow, one feed-forward layer of the same narrowness is too small
beside it: in BERT there are two parameters of feed-forward layers for each one of attention. In the
place of a wider hidden layer, several layers follow each other:

$$y_0 = x, \qquad y_i = y_{i-1} + W_2^{(i)}\, \mathrm{relu}(W_1^{(i)} y_{i-1} + b_1^{(i)}) +
b_2^{(i)}, \qquad \text{added to the stream: } y_s - x$$

With s layers of hidden width dim there are as many parameters as in one of width s dim, and the
work is the same; but what the first found can be used by the second. MobileBERT
(``attnlab.models.mobilebert``), where this is from, has four of hidden width 4 dim, on a stream
that is itself narrowed to a quarter.

Cost: 4 n dim f s FLOPs for s layers of hidden width f, one after the other: more steps than one
layer of the same size.

``naive``  the equation.

Common mistakes: y_s added to the stream, which counts x twice; layers on x, side by side, which are
one wide layer.

Departures.
- no norms between the layers: MobileBERT has a scale and a shift for each number there (NoNorm)
- each layer's output matrix begins divided by √s, and smaller in a deep model, as in GPT-2

Sun, Yu, Song, Liu, Yang, Zhou. MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited
Devices. ACL 2020, arXiv:2004.02984, section 3.2.
"""

import math
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.heads import check_input
from attnlab.core.options import Size, check_value
from attnlab.core.shapes import checked

# ---- forms


@checked
def naive(
    x: Float[Tensor, "b n dim"],
    W_1: Float[Tensor, "s f dim"],
    b_1: Float[Tensor, "s f"],
    W_2: Float[Tensor, "s dim f"],
    b_2: Float[Tensor, "s dim"],
) -> Float[Tensor, "b n dim"]:
    """The equation, with y_i − x summed up so that nothing is subtracted."""
    added = x.new_zeros(x.shape)
    for W, b, V, c in zip(W_1, b_1, W_2, b_2, strict=True):
        added = added + F.relu((x + added) @ W.mT + b) @ V.mT + c
    return added


FORMS = {"naive": naive}

# ---- module


class Narrow(nn.Module):
    """One of the layers."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.expand, self.contract = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        nn.init.zeros_(self.expand.bias)
        nn.init.zeros_(self.contract.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(F.relu(self.expand(x)))
        return out


class Stacked(nn.Module):
    """Feed-forward layers one after the other, each with a residual connection inside.

    stacks: how many.
    hidden: width of each hidden layer; not given, dim, so that four are as large as one MLP.
    """

    def __init__(self, dim: Size, hidden: Size | None = None, stacks: Size = 4) -> None:
        super().__init__()
        self.stacks = check_value("stacks", stacks, Size)
        hidden = dim if hidden is None else hidden
        self.narrow = nn.ModuleList(Narrow(dim, hidden) for _ in range(stacks))
        for each in self.narrow:
            each.contract.weight.data.div_(math.sqrt(stacks))  # type: ignore[operator, union-attr]

    @checked
    def forward(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n dim"]:
        read: Any = self.narrow[0]
        check_input(x, "x", read.expand.in_features, read.expand.weight)
        first, *others = self.narrow
        added: Tensor = first(x)
        for layer in others:
            added = added + layer(x + added)
        return added


# ---- card

n, dim, f, s = letters("n dim f s")

CARD = Card(
    __doc__,
    name="stacked",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(time=4 * n * dim * f * s, parameters=s * (2 * dim * f + f + dim)),
    letters={"s": "stacks"},
    build=Stacked,
    variants=({"hidden": 13, "stacks": 3}, {"stacks": 1}),
    aliases=("stacked_feed_forward",),
    demo="""
    >>> def parameters(name):
    ...     return sum(p.numel() for p in attnlab.build(name, dim=64).parameters())
    >>> parameters("stacked"), parameters("mlp")  # four narrow layers are as large as a wide one
    (33280, 33088)
    """,
)
