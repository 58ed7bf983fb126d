r"""CoPE: each query decides by the contents which keys it counts, and positions are these counts.

A position scheme counts tokens. A query that asks for the third sentence before it, or for the last
name, has to count sentences or names. In contextual position encoding each query chooses what it
counts: the gate $g_{ij}$ of a key is near 1 where the score of the two is large, and near 0 where
it is small. The position of a key is the sum of the gates from it up to the query, and has a
vector, as a distance has one in Shaw's attention (``positions.shaw``):

$$s_{ij} = \frac{q_i \cdot k_j}{\sqrt d},\qquad g_{ij} = \sigma(s_{ij}),\qquad
p_{ij} = \sum_{t=j}^{i} g_{it},$$

$$o_i = \sum_{j \le i} \mathrm{softmax}_j\left(s_{ij} + q_i \cdot e[p_{ij}]\right) v_j$$

$p_{ij}$ is no whole number: between two rows of the table, e is interpolated linearly. From
$p - 1$ on all positions share the last row, with p rows. The heads share the table, which starts at
zeros. With e = 0 this is full attention; with all gates 1 the position is the distance $i - j + 1$;
with all gates 0 every key has the vector e[0], which cancels in the softmax.

Cost: $2 h n m (d + e)$ FLOPs as for full attention, and $2 h n p d$ for the products with the
table. A layer decodes with the keys and values that full attention keeps.

``naive``     a vector for each pair, interpolated between two rows: h·n·m·d numbers.
``gathered``  each query is multiplied with the rows once, and the products are interpolated.

The paper's letters: $g_{ij}$, $p_{ij}$ and $e$ are as here; $p_{max}$ is our p − 1.

Common mistakes: gates of keys that are masked, which count what comes after the query; leaving the
key itself out of its own sum; rounding positions, after which no gradient reaches the gates.

Departures.
- scores are divided by √d, and the products with the table are not, as in the paper's listing; its
  equations have neither scale
- a query without allowed keys gives zeros
- no dropout on the weights

Gives up. All scores of a query are needed before any weight is, so no kernel can go key by key.

Golovneva, Wang, Weston, Sukhbaatar. Contextual Position Encoding: Learning to Count What's
Important. 2024, arXiv:2405.18719.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.attention import SelfAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.softmax import masked_softmax

Table = Float[Tensor, "p d"]  # e of the positions 0 … p - 1, for all heads


@dataclass(frozen=True, kw_only=True)
class CoPEOptions(Options):
    """The table of positions.

    ``rows``  how many positions have a vector; those beyond share the last one.
    """

    rows: Size = 64


# ---- naive


@form
def naive(q: Queries, k: Keys, v: Values, table: Table, *, mask: Mask = None) -> Outputs:
    """The equation, with a vector for each pair. What comes after a query is always masked."""
    scores, allowed = _compared(q, k, mask)
    positions = counted(scores, allowed, len(table))
    lower = positions.floor()
    upper = (lower + 1).clamp(max=len(table) - 1)
    share = (positions - lower)[..., None]
    of_pairs = (1 - share) * table[lower.long()] + share * table[upper.long()]
    bias = (of_pairs @ q[..., None]).squeeze(-1)
    weights = note("weights", masked_softmax(note("scores", scores + bias), allowed))
    return weights @ v


def _compared(q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """The scaled scores, and which pairs are allowed."""
    own, given = (
        patterns.causal().dense(q.shape[2], k.shape[2], q.device),
        patterns.dense_of(mask, q, k),
    )
    return q @ k.mT * q.shape[-1] ** -0.5, own if given is None else own & given


def counted(
    scores: Float[Tensor, "b h n m"], allowed: Tensor, rows: int
) -> Float[Tensor, "b h n m"]:
    """The position of each key: the gates from it up to the query, added up; at most rows - 1."""
    gates = note("gates", torch.sigmoid(scores) * allowed)
    sums = gates.flip(-1).cumsum(-1).flip(-1)
    return note("positions", sums.clamp(max=rows - 1))


# ---- gathered


@form
def gathered(q: Queries, k: Keys, v: Values, table: Table, *, mask: Mask = None) -> Outputs:
    """Products of queries and rows of the table, looked up and interpolated pair by pair."""
    scores, allowed = _compared(q, k, mask)
    positions = counted(scores, allowed, len(table))
    products, lower = q @ table.mT, positions.floor()
    upper = (lower + 1).clamp(max=len(table) - 1)
    below, above = (products.gather(-1, rows.long()) for rows in (lower, upper))
    bias = torch.lerp(below, above, positions - lower)
    weights = note("weights", masked_softmax(note("scores", scores + bias), allowed))
    return weights @ v


FORMS = {"naive": naive, "gathered": gathered}

# ---- module


class CoPEAttention(SelfAttention):
    """Multi-head attention with contextual positions, causal: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "gathered"] = "gathered", bias: bool = False,
        options: CoPEOptions = CoPEOptions(),
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, causal=True, bias=bias)
        self.form, self.options = form, options
        self.table = nn.Parameter(torch.zeros(options.rows, dim // heads))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """By the form that was chosen."""
        return FORMS[self.form](q, k, v, self.table, mask=patterns.visible(True, padding))


# ---- card

h, n, m, d, e, p = letters("h n m d e p")
CONTENT = 2 * h * n * m * (d + e)

CARD = Card(
    __doc__,
    name="cope",
    family="positions",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="a query counts the keys from another one up to itself",
    positions_reason="it counts positions by what the keys hold",
    options=CoPEOptions,
    letters={"p": "rows"},
    time={"naive": CONTENT + 2 * h * n * m * d, "gathered": CONTENT + 2 * h * n * p * d},
    memory={"naive": h * n * m * d, "gathered": h * n * m},
    notes=dict.fromkeys(FORMS, ("gates", "positions", "scores", "weights")),
    variants=({"rows": 3}, {"rows": 5}),
    build=CoPEAttention,
    aliases=("contextual_positions",),
    small_options={"rows": 8},
)
