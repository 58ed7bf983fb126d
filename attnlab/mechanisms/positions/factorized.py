r"""Factorized embedding: a table of narrow rows, and one matrix that makes them wide.

A word embedding is a table of one row per word, as wide as the model: V × dim numbers, often more
than all the rest of a small model. ALBERT makes its width a choice of its own, r, since a
vector for a word alone needs fewer numbers than one for the word in its context:

$$x_t = A_{w_t} W + b, \qquad A \in \mathbb{R}^{V \times r},\; W \in \mathbb{R}^{r \times dim}$$

That is a table of V rows whose rank is at most r. It has V r + r dim numbers (and dim of bias)
instead of V dim, which is fewer exactly if r < V dim / (V + dim), a little less than dim where the
vocabulary is large. In the paper positions and a layer norm come in between, at width r, too:

$$x_t = \mathrm{norm}(A_{w_t} + P_t)\, W + b$$

``naive``   one-hot rows times the table, as the equation stands: n V r multiplications.
``lookup``  fetches the rows.

``FactorizedEmbedding.logits`` uses the same factors as output matrix: (x Wᵀ) Aᵀ, that is
2 r (dim + V) FLOPs per position instead of 2 dim V.

Cost of the lookup: 2 n r dim FLOPs, in place of none for a plain table: the price of fewer
parameters. ``max_len`` adds a table P of positions, ``norm`` the layer norm. ALBERT has both.

The paper's letters: E is r, H is dim. V is ``vocab``.

Readings. A starts with a standard deviation of 0.02 (BERT's, for its whole table), W with variance
1 / r, so that the product starts with 0.02, too.

Departures.
- positions and the layer norm of width r are options. Without ``max_len`` and ``norm`` it is the
  bare product.
- no token types. The two segments of BERT's input are left to the caller.
- the output through the same factors has no matrix, GELU and norm of its own. ALBERT's output layer
  has another matrix dim × r, a GELU and a norm before Aᵀ; ``logits`` has W itself.

Lan, Chen, Goodman, Gimpel, Sharma, Soricut. ALBERT: A Lite BERT for Self-supervised Learning of
Language Representations. ICLR 2020, arXiv:1909.11942, section 3.1.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.layer import Layer
from attnlab.core.lookup import one_hot, rows_of
from attnlab.core.options import Options, Size
from attnlab.core.positions import Positions
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import Tokens, checked

DEVIATION = 0.02
"""Standard deviation of the embedding before training, as in BERT."""

EPSILON = 1e-12
"""Added to the variance by BERT's and ALBERT's layer norms."""


@dataclass(frozen=True, kw_only=True)
class FactorizedOptions(Options):
    """What the table holds, and how wide its rows are.

    ``vocab``    how many rows the table has.
    ``rank``     how wide its rows are, before they are projected to the width of the model.
    ``max_len``  the longest sequence, if positions are added.
    ``norm``     whether vectors are normalised before the projection.
    """

    vocab: Size = 30000
    rank: Size = 128
    max_len: Size | None = None
    norm: bool = False


# ---- naive


@checked
def naive(
    tokens: Int[Tensor, "b n"], table: Float[Tensor, "vocab r"], projection: Float[Tensor, "r dim"],
    bias: Float[Tensor, "dim"], *,
    added: Float[Tensor, "#b n r"] | None = None, norm: Float[Tensor, "2 r"] | None = None,
) -> Tokens:  # fmt: skip
    """One-hot rows times the table; ``added`` are positions and the like, ``norm`` the scale and
    the shift of the layer norm."""
    return _widened(one_hot(tokens, table, "tokens") @ table, projection, bias, added, norm)


@checked
def break_even(vocab: Size, dim: Size) -> float:
    """The rank at which both tables have equally many numbers: V dim / (V + dim)."""
    return vocab * dim / (vocab + dim)


def _widened(
    narrow: Tensor, projection: Tensor, bias: Tensor, added: Tensor | None, norm: Tensor | None
) -> Tensor:
    """norm(A_w + P) W + b."""
    if added is not None:
        narrow = narrow + added
    if norm is not None:
        scale, shift = norm
        normed = F.layer_norm(upcast(narrow), scale.shape, upcast(scale), upcast(shift), EPSILON)
        narrow = normed.to(narrow.dtype)
    return note("narrow", narrow) @ projection + bias


# ---- lookup


@checked
def lookup(
    tokens: Int[Tensor, "b n"], table: Float[Tensor, "vocab r"], projection: Float[Tensor, "r dim"],
    bias: Float[Tensor, "dim"], *,
    added: Float[Tensor, "#b n r"] | None = None, norm: Float[Tensor, "2 r"] | None = None,
) -> Tokens:  # fmt: skip
    """The rows are fetched, not multiplied out."""
    return _widened(rows_of(table, tokens, "tokens"), projection, bias, added, norm)


FORMS = {"naive": naive, "lookup": lookup}

# ---- module


class FactorizedEmbedding(Layer):
    """Words as vectors: (b, n) → (b, n, dim), from V r + r dim + dim numbers."""

    @checked
    def __init__(
        self, dim: Size, *,
        form: Literal["naive", "lookup"] = "lookup",
        options: FactorizedOptions = FactorizedOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        rank = options.rank
        self.form, self.options = form, options
        self.table = nn.Parameter(torch.randn(options.vocab, rank) * DEVIATION)
        self.projection = nn.Parameter(torch.randn(rank, dim) * rank**-0.5)
        self.bias = nn.Parameter(torch.zeros(dim))
        self.norm = nn.Parameter(torch.eye(2, 1).repeat(1, rank)) if options.norm else None
        positions = options.max_len
        self.positions = (
            nn.Parameter(torch.randn(positions, rank) * DEVIATION) if positions else None
        )

    @checked
    def forward(self, tokens: Int[Tensor, "b n"], positions: Positions | None = None) -> Tokens:
        """``positions`` are 0, 1, … if not given; without ``max_len`` there are none to give."""
        return FORMS[self.form](
            tokens,
            self.table,
            self.projection,
            self.bias,
            added=self._added(tokens, positions),
            norm=self.norm,
        )

    @checked
    def logits(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... vocab"]:
        """The scores of all words from the same factors: (x Wᵀ) Aᵀ."""
        if x.shape[-1] != len(self.bias):
            raise ValueError(
                f"x should be vectors of width dim={len(self.bias)}, got {x.shape[-1]}"
            )
        return (x @ self.projection.mT) @ self.table.mT

    def _added(self, tokens: Tensor, positions: Tensor | None) -> Tensor | None:
        if self.positions is None:
            if positions is not None:
                raise ValueError("this embedding has no positions; build it with max_len=…")
            return None
        n, longest = tokens.shape[1], len(self.positions)
        if n > longest:
            raise ValueError(
                f"the sequence has {n} positions, but the embedding was built with "
                f"max_len={longest}; build it with a larger max_len"
            )
        if positions is None:
            return self.positions[None, :n]
        rows = positions if positions.ndim == 2 else positions[None]
        return rows_of(self.positions, rows, "positions", "build it with a larger max_len")


# ---- card

n, dim, r, v = letters("n dim r v")

CARD = Card(
    __doc__,
    name="factorized",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="optional",
    options=FactorizedOptions,
    letters={"r": "rank", "v": "vocab"},
    time={"naive": 2 * n * r * (v + dim), "lookup": 2 * n * r * dim},
    memory={"naive": n * (v + r + dim), "lookup": n * (r + dim)},
    notes={"naive": ("narrow",), "lookup": ("narrow",)},
    variants=({"vocab": 41, "rank": 3}, {"vocab": 41, "rank": 3, "max_len": 97, "norm": True}),
    aliases=("albert",),
    build=FactorizedEmbedding,
)
