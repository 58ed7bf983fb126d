r"""TokenGT: nodes and edges are tokens of a plain Transformer, which is told nothing else.

In the Graph Transformer a graph is a mask. Here nothing is masked: each node and each edge is a
token, and all attend to all. What connects them is written into the tokens. Each node v has an
identifier $P_v$, and the identifiers of a graph are orthonormal, so that $P_u \cdot P_v$ is 1 if
u = v and 0 otherwise. A token holds two of them, and a learned vector that says what it is:

$$z_v = x_v + [P_v, P_v]\, W + E_{node},\qquad z_{uv} = x_{uv} + [P_u, P_v]\, W + E_{edge}$$

Before these tokens stands one learned token, for the graph as a whole. An attention head can now
find out, by the product of a query and a key, which nodes two tokens share: with enough heads (15
for nodes and edges) one layer approximates every linear map of graphs that does not depend on how
the nodes are numbered.

Then follows full attention: the queries $q_i$ of the nodes over the keys $k_j$ and the values $v_j$
of all m = 1 + n + c tokens, with c edges,

$$o_i = \sum_{j=1}^{m} \mathrm{softmax}_j\left(\frac{q_i \cdot k_j}{\sqrt d}\right) v_j$$

Cost: $2 h n m (d + e)$ FLOPs.

``naive``  the equation; it holds the n × m weights.
``fused``  PyTorch's ``scaled_dot_product_attention``.

``TokenGT`` is one attention layer, which makes the tokens and gives back those of the nodes; in a
stack of such layers the edges begin anew in each. ``GraphTokens`` makes the tokens alone, (b, m,
dim), for a backbone that keeps them all: any layer of the catalogue, full attention or a Performer,
whose cost is then linear in m.

Identifiers. ``orthogonal``: the rows of random orthogonal matrices of width r, drawn anew at each
call in training and the same at each call in evaluation. They are orthonormal in graphs of up to r
nodes; in larger ones each r consecutive nodes are. ``laplacian``: the first r eigenvectors of the
graph's Laplacian, the trivial ones included, with random signs in training; they are orthonormal if
the graph has at most r nodes, and do not change if it is numbered anew, but for signs and repeated
eigenvalues.

The paper's letters: our r is its $d_p$, our W, x and E together its $w_{in}$, which projects the
concatenation $[x_v, P_v, P_v, E]$: a sum of projections.

Readings. There is no second learned token ([null]) beside that of the graph.

Departures.
- a loop has the type of an edge; in the released code it has that of a node
- random identifiers of a graph do not depend on the other graphs of its batch. There they come from
  one matrix as large as the largest graph of the batch, cut to 64 columns and normalised again. All
  graphs of a batch share one draw.
- in a stack of layers the edges begin anew in each; GraphTokens makes tokens that are kept

Gives up. Nothing: every node attends to every node and edge, at a cost that grows with both.

Kim, Nguyen, Min, Cho, Lee, Lee, Hong. Pure Transformers are Powerful Graph Learners. NeurIPS 2022,
arXiv:2207.02505, section 2 and appendix A.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.heads import Heads, check_input, zero_nonfinite_padding
from attnlab.core.latents import ATTEND, Form
from attnlab.core.layer import Layer
from attnlab.core.options import Count, Options, Size
from attnlab.core.precision import normal
from attnlab.core.shapes import (
    KeyPadding,
    Keys,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.structures.graph_batch import GraphBatch
from attnlab.structures.laplacian import eigenvectors


@dataclass(frozen=True, kw_only=True)
class TokenGTOptions(Options):
    """How nodes are told apart.

    ``identifiers``    ``orthogonal`` or ``laplacian``.
    ``width``          r, the width of an identifier.
    ``edge_features``  how many features of its edges are read, 0 if none.
    """

    identifiers: Literal["orthogonal", "laplacian"] = "orthogonal"
    width: Size = 64
    edge_features: Count = 0


# ---- forms


@checked
def naive(q: Queries, k: Keys, v: Values, *, padding: KeyPadding = None) -> Outputs:
    """The nodes attend to all tokens; ``padding`` (b, m) is True at those that exist."""
    return ATTEND["naive"](q, k, v, padding)


@checked
def fused(q: Queries, k: Keys, v: Values, *, padding: KeyPadding = None) -> Outputs:
    """``naive`` by PyTorch's ``scaled_dot_product_attention``."""
    return ATTEND["fused"](q, k, v, padding)


FORMS = {"naive": naive, "fused": fused}

# ---- identifiers


@torch.library.custom_op("attnlab::orthogonal_rows", mutates_args=())
def orthogonal_rows(count: int, width: int, seed: Tensor) -> Tensor:
    """(count, width), in float64, drawn from ``seed``: rows of length 1, of which each ``width``
    consecutive ones, from the first on, are orthogonal; each direction is as likely as any other.

    LAPACK's QR prefers signs. With the signs of R's diagonal in its columns, Q follows the uniform
    (Haar) distribution, so that the numbering of the nodes makes no difference in distribution.
    """
    generator = torch.Generator().manual_seed(int(seed))
    blocks = range(-(-count // width))  # one by one: longer draws would not begin with shorter ones
    drawn = torch.stack([normal(width, width, generator=generator) for _ in blocks])
    q, r = torch.linalg.qr(drawn)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1, 1)
    return (q * signs[..., None, :]).flatten(0, 1)[:count].to(seed.device)


@orthogonal_rows.register_fake
def _shape(count: int, width: int, seed: Tensor) -> Tensor:
    return seed.new_empty(count, width, dtype=torch.float64)


# ---- module


class GraphTokens(Layer):
    """The tokens of graphs: (b, n, dim) → (b, m, dim), first the graph, then n nodes, then edges,
    with a padding (b, m) that is True at tokens that exist."""

    @checked
    def __init__(self, dim: Size, options: TokenGTOptions = TokenGTOptions()) -> None:
        super().__init__()
        self.dim, self.options = dim, options
        self.identify = nn.Linear(2 * options.width, dim, bias=False)
        self.types = nn.Parameter(torch.randn(2, dim) * dim**-0.5)  # of a node, of an edge
        self.graph = nn.Parameter(torch.randn(dim) * dim**-0.5)
        features = options.edge_features
        self.edges = nn.Linear(features, dim) if features else None

    @checked
    def forward(
        self, x: Tokens, *, structure: GraphBatch | None = None
    ) -> tuple[Float[Tensor, "b m dim"], Bool[Tensor, "b m"]]:
        structure = GraphBatch.fitting(structure, x, None)
        check_input(x, "x", self.dim, self.identify.weight)
        p = self.identifiers(structure).to(x.dtype)
        nodes = (
            zero_nonfinite_padding(x, structure.padding)
            + self.identify(torch.cat([p, p], -1))
            + self.types[0]
        )
        edges = self._edges(p.flatten(0, 1), structure)
        b, c = structure.edge_padding.shape
        placed = edges.new_zeros(b * c, self.dim).index_add(0, structure.places, edges)
        first = self.graph.to(nodes.dtype).expand(b, 1, -1)
        exists = structure.padding.new_ones(b, 1)
        tokens = torch.cat([first, nodes, placed.view(b, c, self.dim)], 1)
        return tokens, torch.cat([exists, structure.padding, structure.edge_padding], 1)

    def identifiers(self, structure: GraphBatch) -> Float[Tensor, "b n r"]:
        """P of each node of each graph, in float64."""
        (b, n), device = structure.padding.shape, structure.padding.device
        r = self.options.width
        if self.options.identifiers == "orthogonal":
            seed = torch.zeros(1, dtype=torch.long, device=device)
            if self.training:
                seed = torch.randint(2**62, (1,), device=device)
            drawn: Tensor = orthogonal_rows(n, r, seed)
            return drawn.expand(b, n, r)
        found = eigenvectors(structure, r, trivial=True)
        if self.training:
            return found * (torch.randint(2, (b, 1, r), device=device) * 2 - 1)
        return found

    def _edges(self, p: Tensor, structure: GraphBatch) -> Float[Tensor, "e dim"]:
        ends = [p.index_select(0, at) for at in (structure.sources, structure.targets)]
        made: Tensor = self.identify(torch.cat(ends, -1)) + self.types[1]
        if self.edges is None:
            return made
        own: Tensor = self.edges(structure.read_features(self.options.edge_features).to(p.dtype))
        return made + own


class TokenGT(Layer):
    """The nodes of graphs attend to all nodes and edges: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Form = "fused", bias: bool = False,
        options: TokenGTOptions = TokenGTOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.form = Heads(dim, heads, bias=bias), form
        self.tokens = GraphTokens(dim, options)

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *, structure: GraphBatch | None = None
    ) -> Tokens:
        """``structure`` is the graphs; ``padding`` (b, n), if given, is that of the structure."""
        structure = GraphBatch.fitting(structure, x, padding)
        tokens, exist = self.tokens(x, structure=structure)
        nodes = tokens[:, 1 : 1 + x.shape[1]]
        q, k, v = self.heads.project(nodes, tokens, padding=exist)
        return self.heads.merge(FORMS[self.form](q, k, v, padding=exist))


# ---- card

h, n, n_E, d, e = letters("h n n_E d e")

CARD = Card(
    __doc__,
    name="token_gt",
    family="structure",
    role="attend",
    forms=FORMS,
    options=TokenGTOptions,
    structure=GraphBatch,
    causal="never",
    causal_reason="the nodes and edges of a graph have no order",
    positions_reason="the nodes and edges of a graph have no order",
    time=2 * h * n * (n + n_E) * (d + e),
    memory={"naive": h * n * (n + n_E), "fused": h * (n + n_E) * (d + e)},
    notes={"naive": ("scores", "weights")},
    variants=({"edge_features": 2, "width": 5}, {"identifiers": "laplacian", "width": 4}),
    build=TokenGT,
    aliases=("tokengt",),
)
