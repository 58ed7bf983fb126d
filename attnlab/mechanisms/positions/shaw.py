r"""Relative position representations (Shaw): keys and values get a vector for their distance.

The pair of positions i and j has two vectors of its own, one added to the key and one to the value
that query i finds at j. Both depend on the distance alone, and distances beyond k share the vector
of k:

$$s_{ij} = \frac{q_i \cdot (k_j + a^K_{c})}{\sqrt d},\qquad o_i = \sum_j w_{ij}\,(v_j + a^V_{c}),
\qquad c = \mathrm{clip}(j - i,\, -k,\, k)$$

The key vectors let a query prefer a distance, by content: $q_i \cdot a^K_c$ is another number for
another query. The value vectors write the distance at which something was found into the output.
Beyond k the scores do not depend on the order of the keys.

Only 2k + 1 vectors differ, so no tensor of all pairs' vectors is needed. Queries meet the table
once, $q_i \cdot a^K_c$ for every c, and each pair looks its number up. In the output, weights of
equal c multiply the same vector, so they are added up first: $\sum_c \bigl(\sum_{j:\, c(i, j) =
c} w_{ij}\bigr)\, a^V_c$.

Cost: $2 h n m (d + e)$ FLOPs for contents and values and $2 h n (2k + 1)(d + e)$ for the tables.

``naive``    the equation: tensors of n m d and n m e numbers, looked up in the tables.
``clipped``  scores by clipped distance, looked up; weights added up by clipped distance. The
             largest tensors are the n × m scores (where 2k + 1 < m) and their index.

The paper's letters: $z_i$ is our o, $e_{ij}$ our s, $α_{ij}$ our w, $w^K$ and $w^V$ the tables.

The traps: the distance is key minus query; 1/√d scales both terms of the score; in a causal layer
the vectors of the k distances to later keys are never used.

Readings. Under a ``padding`` only valid tokens are counted as positions.

Departures.
- one of the two tables may be left out. The paper finds that keys matter most.
- a row without keys gives zeros
- no dropout on the weights

Gives up. All distances beyond the clip share one vector.

Shaw, Uszkoreit, Vaswani. Self-Attention with Relative Position Representations. NAACL 2018,
arXiv:1803.02155, section 3.
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
from attnlab.core.options import Count, Options, Size
from attnlab.core.positions import positions_of
from attnlab.core.probe import note
from attnlab.core.shapes import KeyPadding, Keys, Outputs, Queries, Values, checked
from attnlab.core.softmax import masked_softmax

KeyTable = Float[Tensor, "c d"] | None  # a^K of the distances -k … k, for all heads; None: zeros
ValueTable = Float[Tensor, "c e"] | None  # a^V


@dataclass(frozen=True, kw_only=True)
class ShawOptions(Options):
    """The tables of distances.

    ``clip``    the largest distance that has a row of its own; those beyond share it.
    ``keys``    whether keys have a table.
    ``values``  whether values have one.
    """

    clip: Count = 16
    keys: bool = True
    values: bool = True

    def check(self) -> None:
        if not (self.keys or self.values):
            raise ValueError(
                "keys=False and values=False leave no positions; build 'full' attention for that"
            )


# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, a_keys: KeyTable, a_values: ValueTable, *,
    causal: bool = False, padding: KeyPadding = None,
) -> Outputs:  # fmt: skip
    """The equation, a vector looked up for each pair (Shaw et al., eq. 3 and 4)."""
    n, d, m = *q.shape[2:], k.shape[2]
    mask = patterns.dense_of(patterns.visible(causal, padding), q, k)
    c = note("distances", clipped_distances(n, m, _rows(a_keys, a_values), padding, q.device))
    scores = q @ k.mT
    if a_keys is not None:
        of_pairs = a_keys[c]  # (1 | b, n, m, d)
        scores = scores + (q.transpose(1, 2) @ of_pairs.mT).transpose(1, 2)
    weights = note("weights", masked_softmax(note("scores", scores * d**-0.5), mask))
    out = weights @ v
    if a_values is not None:
        out = out + (weights.transpose(1, 2) @ a_values[c]).transpose(1, 2)
    return out


def clipped_distances(
    n: int, m: int, rows: int, padding: Tensor | None, device: torch.device
) -> Tensor:
    """c + k, the row of a table for each pair: (1, n, m), or (b, n, m) under a padding."""
    at = positions_of(m, device, padding=padding).expand(1 if padding is None else -1, -1)
    k = (rows - 1) // 2
    return (at[:, None, :] - at[:, m - n :, None]).clamp(-k, k) + k


def _rows(a_keys: Tensor | None, a_values: Tensor | None) -> int:
    """2k + 1; 1 without any table."""
    rows = next((len(table) for table in (a_keys, a_values) if table is not None), 1)
    if rows % 2 == 0:
        raise ValueError(f"a table has 2k + 1 rows, for the distances -k … k, got {rows}")
    return rows


# ---- clipped


@form
def clipped(
    q: Queries, k: Keys, v: Values, a_keys: KeyTable, a_values: ValueTable, *,
    causal: bool = False, padding: KeyPadding = None,
) -> Outputs:  # fmt: skip
    """Queries meet the table once, and weights are added up by clipped distance."""
    (b, h, n, d), m = q.shape, k.shape[-2]
    mask = patterns.dense_of(patterns.visible(causal, padding), q, k)
    rows = _rows(a_keys, a_values)
    c = note("distances", clipped_distances(n, m, rows, padding, q.device))
    c = c[:, None].expand(b, h, n, m)
    scores = q @ k.mT
    if a_keys is not None:
        scores = scores + (q @ a_keys.mT).gather(-1, c)
    weights = note("weights", masked_softmax(note("scores", scores * d**-0.5), mask))
    out = weights @ v
    if a_values is not None:
        sums = weights.new_zeros(b, h, n, rows).scatter_add(-1, c, weights)
        out = out + note("sums", sums) @ a_values
    return out


FORMS = {"naive": naive, "clipped": clipped}

# ---- module


class ShawAttention(SelfAttention):
    """Multi-head attention with vectors for distances: (b, n, dim) → (b, n, dim).

    The heads share the tables: 2k + 1 rows of width dim / heads each.
    """

    a_keys: Tensor | None
    a_values: Tensor | None

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "clipped"] = "clipped", bias: bool = False,
        options: ShawOptions = ShawOptions(),
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, causal=causal, bias=bias)
        self.form, self.options = form, options
        for name, wanted in (("a_keys", options.keys), ("a_values", options.values)):
            table = torch.empty(2 * options.clip + 1, dim // heads) if wanted else None
            own = None if table is None else nn.Parameter(nn.init.xavier_uniform_(table))
            self.register_parameter(name, own)

    @property
    def adds_constant(self) -> bool:
        """Whether outputs hold a mean of the table's rows, which no value changes."""
        return self.options.values

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        tables = (self.a_keys, self.a_values)
        return FORMS[self.form](q, k, v, *tables, causal=self.causal, padding=padding)


# ---- card

h, n, m, d, e, k = letters("h n m d e k")
CONTENT = 2 * h * n * m * (d + e)

CARD = Card(
    __doc__,
    name="shaw",
    family="positions",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=ShawOptions,
    letters={"k": "clip"},
    positions_reason="its keys have vectors of their own for the distance",
    time={"naive": 2 * CONTENT, "clipped": CONTENT + 2 * h * n * (2 * k + 1) * (d + e)},
    memory={"naive": n * m * (d + e) + h * n * m, "clipped": h * n * m},
    notes={
        "naive": ("distances", "scores", "weights"),
        "clipped": ("distances", "scores", "weights", "sums"),
    },
    variants=({"clip": 2}, {"clip": 3, "values": False}, {"clip": 3, "keys": False}),
    build=ShawAttention,
    small_options={"clip": 4},
)
