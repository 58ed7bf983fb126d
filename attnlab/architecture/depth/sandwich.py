r"""Sandwich order: the same sublayers, attention more at the bottom, feed-forward more at the top.

A stack of n layers is a string of sublayers, s for self-attention and f for feed-forward,
$(sf)^n$. Sandwich order takes k of each out of the middle and puts them to the two ends,

$$s^k\,(sf)^{n-k}\,f^k,\qquad 0 \le k \le n - 1,$$

so that the first k + 1 sublayers are attention and the last k + 1 feed-forward. Parameters and cost
are those of the stack in its usual order, which is k = 0. In the paper language models of 16 layers
became better with k = 6, translation models did not.

The i-th s of the string is the attention of layer i, and the i-th f its feed-forward layer. Each
sublayer adds to the stream through its own join, which must be one that only adds.

Cost: none.

``naive``  the sublayers in this order.

Common mistakes: k counted over both kinds, which would be 2k; a post-norm, whose order of norms
would change with that of the sublayers.

Departures.
- k is 1 by default; the paper searches for it

Press, Smith, Levy. Improving Transformer Models by Reordering their Sublayers. ACL 2020,
arXiv:1911.03864, section 4.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from attnlab.core.branches import Branch, Layer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way
from attnlab.core.options import Count, Size

# ---- helpers


def order(n: int, k: int) -> str:
    """The string of s and f; a ValueError unless 0 ≤ k ≤ n - 1."""
    if not 0 <= k < n:
        raise ValueError(
            f"k should be from 0 to {n - 1}, one less than the {n} layers of the stack, got {k}"
        )
    return "s" * k + "sf" * (n - k) + "f" * k


# ---- forms


def naive(x: Tensor, layers: Sequence[Layer], *, k: Count = 1) -> Tensor:
    """The sublayers in the order of the string, each adding to the stream."""
    for branch in ordered(layers, k):
        x = x + branch.run(x)
    return x


FORMS = {"naive": naive}


def ordered(layers: Sequence[Layer], k: int) -> list[Branch]:
    """The branches of the layers, in the order of the string."""
    attending, feeding = zip(*(layer.branches for layer in layers), strict=True)
    ways = {"s": iter(attending), "f": iter(feeding)}
    return [next(ways[letter]) for letter in order(len(layers), k)]


# ---- module


class Sandwich(Way):
    """The branches of the layers in sandwich order.

    k: how many attention layers stand before the others, and feed-forward layers behind them.
    layers: of the stack, if it is to be checked now that k is less.
    """

    reads_branches = True

    def __init__(self, k: Count = 1, layers: Size | None = None) -> None:
        super().__init__()
        self.k = k
        self.run = self.read_on = partial(naive, k=k)
        if layers is not None:
            order(layers, k)

    def extra_repr(self) -> str:
        return f"k={self.k}"


# ---- card

L, a, p = letters("L a p")

CARD = Card(
    __doc__,
    name="sandwich_order",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(
        kept=L * a, parameters=L * p, equals="the sublayers of the layers in another order"
    ),
    build=Sandwich,
    variants=({"k": 2},),
    aliases=("sandwich_transformer",),
    demo="""
    >>> from attnlab.architecture.depth.sandwich import order
    >>> order(6, 0), order(6, 2)  # s is attention, f a feed-forward layer
    ('sfsfsfsfsfsf', 'sssfsfsfsfff')
    >>> def parameters(depth):
    ...     model = attnlab.TinyTransformer(50, depth=depth)
    ...     return sum(p.numel() for p in model.parameters())
    >>> parameters("sandwich_order") == parameters("plain")
    True
    """,
)
