r"""Feed-forward layer: two matrices with a curve in between, at each position alone.

Attention only averages what other positions hold. The layer after it computes something new from
the result, the same function at every position, first in a wider layer and back:

$$y = W_2\, \mathrm{gelu}(W_1 x + b_1) + b_2$$

Two thirds of the parameters of a transformer stand here, as the hidden layer is four times as wide
as the stream. A row of $W_1$ is a pattern that is looked for, and a column of $W_2$ what is added
where it was found.

Cost: 4 n dim f FLOPs for a hidden layer of width f, linear in n.

``naive``    the equation.
``chunked``  the sequence in pieces, one after the other; the backward pass computes the hidden
             layer of each piece again. It keeps one piece of the hidden layer for one more forward
             pass (Kitaev et al., Reformer, ICLR 2020, arXiv:2001.04451, section 3).

Common mistakes: a curve after the second matrix; layers that are shared by all positions of a
sequence but not by all sequences of a batch.

Departures.
- GELU in the place of ReLU, as in GPT-2 and BERT; ``curve="relu"`` is the paper's
- the output matrix begins smaller in a deep model, as in GPT-2

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin. Attention Is All You Need.
NeurIPS 2017, arXiv:1706.03762, section 3.3.
"""

from functools import partial
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from attnlab.core.branches import Sublayer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.heads import check_input
from attnlab.core.options import Size, check_value
from attnlab.core.shapes import checked

Curve: TypeAlias = Literal["gelu", "relu"]
CURVES: dict[str, Sublayer] = {"gelu": F.gelu, "relu": F.relu}

# ---- forms


@checked
def naive(
    x: Float[Tensor, "b n dim"],
    W_1: Float[Tensor, "f dim"],
    b_1: Float[Tensor, "f"],
    W_2: Float[Tensor, "dim f"],
    b_2: Float[Tensor, "dim"],
    *,
    curve: Curve = "gelu",
) -> Float[Tensor, "b n dim"]:
    """The equation: y = W₂ gelu(W₁ x + b₁) + b₂, or with relu as the ``curve``."""
    return CURVES[curve](x @ W_1.mT + b_1) @ W_2.mT + b_2


@checked
def chunked(
    x: Float[Tensor, "b n dim"],
    W_1: Float[Tensor, "f dim"],
    b_1: Float[Tensor, "f"],
    W_2: Float[Tensor, "dim f"],
    b_2: Float[Tensor, "dim"],
    *,
    chunks: Size = 2,
    curve: Curve = "gelu",
) -> Float[Tensor, "b n dim"]:
    """``naive`` on so many pieces of the sequence."""
    return in_pieces(lambda piece: naive(piece, W_1, b_1, W_2, b_2, curve=curve), x, chunks)


FORMS = {"naive": naive, "chunked": chunked}


def in_pieces(run: Sublayer, x: Tensor, chunks: int) -> Tensor:
    """``run`` on pieces of the sequence, each computed again during the backward pass."""
    pieces = x.chunk(chunks, dim=1)
    if torch.is_grad_enabled():  # nothing here is random, so no state of a generator need be kept
        run = partial(checkpoint, run, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([run(piece) for piece in pieces], dim=1)


# ---- module


class MLP(nn.Module):
    """Two linear layers with a curve in between.

    hidden: width in between, 4·dim if not given.
    chunks: in how many pieces of the sequence it runs; 1 is all at once.
    curve: "gelu" or "relu".
    bias: whether something is added to both products; T5 has no biases.
    """

    def __init__(
        self, dim: Size, hidden: Size | None = None, chunks: Size = 1, curve: Curve = "gelu",
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.chunks = check_value("chunks", chunks, Size)
        self.curve: Curve = check_value("curve", curve, Curve)
        bias = check_value("bias", bias, bool)
        hidden = 4 * dim if hidden is None else hidden
        self.expand = nn.Linear(dim, hidden, bias=bias)
        self.contract = nn.Linear(hidden, dim, bias=bias)
        if bias:
            nn.init.zeros_(self.expand.bias)
            nn.init.zeros_(self.contract.bias)

    def extra_repr(self) -> str:
        given = {"chunks": self.chunks, "curve": self.curve}
        usual = {"chunks": 1, "curve": "gelu"}
        return ", ".join(f"{name}={x!r}" for name, x in given.items() if x != usual[name])

    @checked
    def forward(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n dim"]:
        check_input(x, "x", self.expand.in_features, self.expand.weight)
        return self._run(x) if self.chunks == 1 else in_pieces(self._run, x, self.chunks)

    def _run(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(CURVES[self.curve](self.expand(x)))
        return out


# ---- card

n, dim, f = letters("n dim f")

CARD = Card(
    __doc__,
    name="mlp",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(time=4 * n * dim * f, parameters=2 * dim * f + f + dim),
    build=MLP,
    variants=({"hidden": 13}, {"chunks": 3}, {"curve": "relu"}),
    aliases=("feed_forward", "ffn"),
    demo="""
    >>> layer, x = attnlab.build("mlp", dim=64), torch.randn(1, 100, 64)
    >>> torch.allclose(layer(x)[:, 7:8], layer(x[:, 7:8]), atol=1e-5)  # token 7 needs no other
    True
    >>> sum(p.numel() for p in layer.parameters())  # two matrices of 64 × 256, and biases
    33088
    """,
)
