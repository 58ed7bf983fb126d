r"""Product keys: a table of very many values, of which each token reads a few.

A wide MLP multiplies every token with all of its hidden units, though few of them answer. Here the
hidden layer is a table of $K^2$ values. A token makes a query $q$, the values whose keys fit it
best are looked up, and a softmax over those few scores weighs them:

$$y = \sum_{i \in I} w_i v_i, \qquad I = \mathrm{top}_k\,(q \cdot k_1, \ldots, q \cdot k_{K^2}),
\qquad w = \mathrm{softmax}_{i \in I}\,(q \cdot k_i)$$

To find the best of $K^2$ keys all would have to be compared. So keys are a product of two sets of
K half keys: key $(i, j)$ is $[c_i\,;\,c'_j]$, and with the query in two halves its score is a sum:

$$q \cdot k_{(i,j)} = q_1 \cdot c_i + q_2 \cdot c'_j$$

The best k of the $K^2$ sums are among the k best of one half paired with the k best of the other:
a pair with a half that is not among its k best is beaten by k pairs, those with a better half in
its place. So 2 K products and k² sums find exactly what K² products would. A token has several
queries, whose results are added.

Cost: the values grow without the time: 4 n q d (dim + K) FLOPs for q queries of halves of width d.
The weighted sums of values, 2 n q k dim more, are a lookup and are not counted, as everywhere here.

``naive``    the equation: all K² keys are made and compared.
``product``  the k best of each half, then the k best of their k² sums: the same keys exactly.

Common mistakes: k / 2 of each half, which misses pairs; softmax over all keys before the choice,
which weighs by what is not read; a table that is trained like a matrix, though a value has a
gradient only when it is read.

Departures.
- queries have no batch norm unless ``batch_norm=True``: it makes tokens of a batch depend on each
  other. The paper has it, since without it few values are ever read. Padding takes no part in it
- values learn at the rate of all other weights; the paper gives them a larger one
- values begin smaller in a deep model, like the output matrix of an MLP

Lample, Sablayrolles, Ranzato, Denoyer, Jégou. Large Memory Layers with Product Keys. NeurIPS 2019,
arXiv:1907.05242, section 3.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.forms import form
from attnlab.core.heads import check_input
from attnlab.core.options import Size, check_value
from attnlab.core.probe import note
from attnlab.core.shapes import TokenPadding, checked

# ---- forms


@form
def naive(
    q: Float[Tensor, "b n q 2 d"],
    half_keys: Float[Tensor, "q 2 K d"],
    values: Float[Tensor, "K K dim"],
    *,
    top: Size = 8,
) -> Float[Tensor, "b n dim"]:
    """The equation. Key (i, j) is half key i beside half key j, and has the number i K + j."""
    first, second = half_keys.unbind(1)
    K = _enough(top, half_keys)
    whole = torch.cat((first.repeat_interleave(K, dim=1), second.repeat(1, K, 1)), dim=-1)
    scores = torch.einsum("bnqd,qkd->bnqk", q.flatten(-2), whole)
    return _read(*scores.topk(top), values)


@form
def product(
    q: Float[Tensor, "b n q 2 d"],
    half_keys: Float[Tensor, "q 2 K d"],
    values: Float[Tensor, "K K dim"],
    *,
    top: Size = 8,
) -> Float[Tensor, "b n dim"]:
    """The k best of each half, then the k best of the sums of their scores."""
    K = _enough(top, half_keys)
    halves = torch.einsum("bnqsd,qskd->bnqsk", q, half_keys)
    scores, index = halves.topk(min(top, K))
    sums = scores[..., 0, :, None] + scores[..., 1, None, :]
    number = index[..., 0, :, None] * K + index[..., 1, None, :]
    best, at = sums.flatten(-2).topk(top)
    return _read(best, number.flatten(-2).gather(-1, at), values)


FORMS = {"naive": naive, "product": product}


def _read(scores: Tensor, chosen: Tensor, values: Tensor) -> Tensor:
    """The values of these numbers, weighed by a softmax for each query, summed over queries."""
    weights, chosen = note("weights", scores.softmax(-1)), note("chosen", chosen)
    rows = chosen.flatten(0, 1).flatten(1)
    out = F.embedding_bag(
        rows, values.flatten(0, 1), mode="sum", per_sample_weights=weights.reshape(rows.shape)
    )
    return out.unflatten(0, chosen.shape[:2])


def _enough(top: int, half_keys: Tensor) -> int:
    """The number of half keys; a ValueError if fewer values than ``top`` can be made of them."""
    K = half_keys.shape[-2]
    if top > K * K:
        raise ValueError(
            f"top should be at most keys² = {K * K}, the number of values, got {top}; give more "
            "keys or a smaller top"
        )
    return K


# ---- module


class ProductKeys(nn.Module):
    """A memory of keys² values that each token reads by several queries.

    keys: half keys in each of the two sets, so keys² values.
    top: how many values a query reads.
    queries: how many queries a token has, each with half keys of its own, all with one table.
    width: width of a half query, dim / 2 if not given.
    batch_norm: normalise queries over the tokens of a batch while training, as the paper does.
    """

    def __init__(
        self, dim: Size, keys: Size = 32, top: Size = 8, queries: Size = 2,
        width: Size | None = None, batch_norm: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.width = max(1, dim // 2) if width is None else check_value("width", width, Size)
        self.keys, self.top, self.queries = keys, top, queries
        self.query = nn.Linear(dim, queries * 2 * self.width)
        self.norm = nn.BatchNorm1d(queries * 2 * self.width) if batch_norm else None
        self.half_keys = nn.Parameter(torch.randn(queries, 2, keys, self.width))
        _enough(top, self.half_keys)
        self.half_keys.data.mul_(self.width**-0.5)
        self.contract = nn.EmbeddingBag(keys * keys, dim, mode="sum")
        nn.init.normal_(self.contract.weight, std=dim**-0.5)
        nn.init.zeros_(self.query.bias)

    def extra_repr(self) -> str:
        return f"keys={self.keys}, top={self.top}, queries={self.queries}"

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: TokenPadding = None
    ) -> Float[Tensor, "b n dim"]:
        check_input(x, "x", self.query.in_features, self.query.weight)
        q = self._normalised(self.query(x), padding)
        q = q.unflatten(-1, (self.queries, 2, self.width))
        return product(q, self.half_keys, self._values(), top=self.top)

    def _values(self) -> Tensor:
        return self.contract.weight.unflatten(0, (self.keys, self.keys))

    def _normalised(self, q: Tensor, padding: Tensor | None) -> Tensor:
        if self.norm is None:
            return q
        if self.training and (q[..., 0].numel() if padding is None else padding.sum()) < 2:
            raise ValueError(
                "batch_norm=True needs at least 2 real tokens in a batch while training, whose "
                "mean and spread it takes; give more, or build the layer without it"
            )
        if padding is None:
            out: Tensor = self.norm(q.flatten(0, 1)).view_as(q)
            return out
        return q.masked_scatter(padding[..., None], self.norm(q[padding]))


# ---- card

n, dim, K, k, q, d = letters("n dim K k q d")

CARD = Card(
    __doc__,
    name="product_keys",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(
        time=4 * n * q * d * (dim + K),
        parameters=2 * q * d * (dim + 1 + K) + K**2 * dim,
        active=2 * q * d * (dim + 1 + K) + q * k * dim,
    ),
    letters={"K": "keys", "k": "top", "q": "queries", "d": "width"},
    notes={"naive": ("weights", "chosen"), "product": ("weights", "chosen")},
    build=ProductKeys,
    variants=({"keys": 5, "top": 25, "queries": 3}, {"keys": 11, "top": 1, "width": 7}),
    aliases=("pkm",),
    demo="""
    >>> layer = attnlab.build("product_keys", dim=64, keys=32, top=8, queries=2)
    >>> len(layer.contract.weight)  # values, of which a query compares 2 × 32 half keys
    1024
    >>> layer(torch.randn(1, 1, 64)).sum().backward()
    >>> read = (layer.contract.weight.grad != 0).any(-1).sum().item()
    >>> 8 <= read <= 16  # at most eight for each of the two queries
    True
    """,
)
