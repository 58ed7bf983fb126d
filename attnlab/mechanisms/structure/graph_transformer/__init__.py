r"""Graph Transformer: each node of a graph attends to its neighbours.

A graph is a mask. In full attention every token attends to every token; here a token is a node, and
node i attends to the nodes j from which an edge leads to it, $N_i$:

$$w_{ij} = \frac{e^{s_{ij}}}{\sum_{j' \in N_i} e^{s_{ij'}}},\qquad s_{ij} = \frac{q_i \cdot
k_j}{\sqrt{d}},\qquad o_i = \sum_{j \in N_i} w_{ij} v_j$$

On the complete graph with a loop at each node this is full attention. An edge may have features
$e_{ij}$. They become a vector of width d for each head, which multiplies the product of the query
and the key entry by entry, before it is summed:

$$s_{ij} = \frac{1}{\sqrt{d}} \sum_{c=1}^{d} q_{ic}\, k_{jc}\, (E\, e_{ij})_c$$

Nothing depends on how the nodes are numbered: permuting them permutes the output. That also means
that a node is not told where in the graph it stands; for this the first layer's input is given the
eigenvectors of the graph's Laplacian (``positions="laplacian"``, ``attnlab.structures.laplacian``).

Cost, with $n_E$ edges: ``naive`` takes $2 h n^2 (d + e)$ FLOPs and holds a score for each pair of
nodes (for each of up to r parallel edges); ``edges`` takes $2 h n_E (d + e)$ and holds one vector
of width d for each edge and head.

``naive``  softmax over all pairs of nodes under the adjacency.
``edges``  over the list of edges: gather queries, keys and values, and sum them at the targets.

``GraphTransformer`` is the attention alone, which a model surrounds by its own residuals and feed
forward layers; ``layer.GraphTransformerLayer`` is the layer of the paper, with batch or layer
normalisation and, if wanted, its second stream, of edges.

The paper's letters: $\hat w$ is our s, $\mathcal{N}_i$ our $N_i$, $d_k$ our d.

Readings. Several edges from j to i are several terms of the softmax; a node to which no edge leads
gets zeros. A loop is an edge like any other, and none is added (``Graph.with_loops`` adds them).

Departures.
- scores are not clamped to [-5, 5], as the released code does. It does not subtract the largest
  score either.
- a node without edges gets zeros, where the released code divides zero by zero

Gives up. A node attends to its neighbours only: L layers reach L edges far.

Dwivedi, Bresson. A Generalization of Transformer Networks to Graphs. AAAI Workshop on Deep Learning
on Graphs 2021, arXiv:2012.09699, sections 2.2 and 2.3.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.options import Count, Size
from attnlab.core.precision import upcast
from attnlab.core.shapes import (
    Outputs,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.structures import edge_sums
from attnlab.structures.graph_attention import of_tokens, over_edges, over_pairs
from attnlab.structures.graph_batch import GraphBatch

Gates = Float[Tensor, "... h d"]  # E e of each of the m edges, of which there may be none

# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, *, structure: GraphBatch, gates: Gates | None = None
) -> Outputs:
    """What each node takes from the sources of the edges that lead to it (eq. 3 to 5, 8 to 12).

    ``gates`` (m, h, d) are the vectors E e of the edges of the structure; without them all ones.
    """
    structure.check_fits(len(q), q.shape[2], q.device)
    own = q * q.shape[-1] ** -0.5
    if gates is None:
        return over_pairs(own @ k.mT, v, structure)
    check_gates(gates, structure)
    dense = F.pad(gates, (0, 0, 0, 0, 0, 1))[structure.slots]  # the last where there is none
    scores = torch.einsum("bhid,bhjd,bijrhd->bhijr", own, k, dense)  # r parallel edges
    return over_pairs(scores, v, structure)


# ---- edges


@form(autocast=True)
def edges(
    q: Queries, k: SelfKeys, v: SelfValues, *, structure: GraphBatch, gates: Gates | None = None
) -> Outputs:
    """``naive`` over the list of edges."""
    structure.check_fits(len(q), q.shape[2], q.device)
    if gates is None:
        own, keys = of_tokens(q * q.shape[-1] ** -0.5), of_tokens(k)
        return over_edges(edge_sums.products(own, keys, structure.by_ends), v, structure)
    return over_edges(products(q, k, structure, gates).sum(-1), v, structure)


def products(
    q: Tensor, k: Tensor, structure: GraphBatch, gates: Tensor | None
) -> Float[Tensor, "m h d"]:
    """The product of query, key and gate on each edge, entry by entry, over √d."""
    own = of_tokens(upcast(q) * q.shape[-1] ** -0.5).index_select(0, structure.targets)
    found = own * of_tokens(upcast(k)).index_select(0, structure.sources)
    if gates is None:
        return found
    check_gates(gates, structure)
    return found * upcast(gates)


def check_gates(gates: Tensor, structure: GraphBatch) -> None:
    """A ValueError unless there is one for each edge."""
    if len(gates) != len(structure.sources):
        raise ValueError(
            f"`gates` are of {len(gates)} edges, but the structure has {len(structure.sources)}"
        )


FORMS = {"naive": naive, "edges": edges}

# ---- module


class GraphTransformer(nn.Module):
    """Attention over the edges of graphs: (b, n, dim) → (b, n, dim); zeros go to the output
    projection where no edge leads to a node.

    ``edge_features`` is how many features of its edges the layer reads, 0 if none: the features of
    the structure are then left to other layers.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, edge_features: Count = 0,
        form: Literal["naive", "edges"] = "edges", bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.form = Heads(dim, heads, bias=bias), form
        self.edge_features = edge_features
        width = heads * self.heads.head_dim
        self.gates = nn.Linear(edge_features, width, bias=bias) if edge_features else None

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *, structure: GraphBatch | None = None
    ) -> Tokens:
        """``structure`` is the graphs; ``padding`` (b, n), if given, is that of the structure."""
        structure = GraphBatch.fitting(structure, x, padding)
        q, k, v = self.heads.project(x, padding=structure.padding)
        gates = self._gates(structure, x)
        return self.heads.merge(FORMS[self.form](q, k, v, structure=structure, gates=gates))

    def _gates(self, structure: GraphBatch, x: Tensor) -> Tensor | None:
        if self.gates is None:
            return None
        made: Tensor = self.gates(structure.read_features(self.edge_features).to(x.dtype))
        return made.unflatten(-1, (self.heads.heads, -1))

    def extra_repr(self) -> str:
        return f"edge_features={self.edge_features}, form={self.form!r}"


# ---- card

h, n, n_E, d, e = letters("h n n_E d e")

CARD = Card(
    __doc__,
    name="graph_transformer",
    family="structure",
    role="attend",
    forms=FORMS,
    structure=GraphBatch,
    causal="never",
    causal_reason="the nodes of a graph have no order, and edges lead from any of them to any "
    "other",
    positions_reason="the nodes of a graph have no order",
    time={"naive": 2 * h * n**2 * (d + e), "edges": 2 * h * n_E * (d + e)},
    memory={"naive": 2 * h * n**2, "edges": 2 * h * n_E * (d + e)},
    notes={"naive": ("weights",), "edges": ("edge_weights", "weights")},
    variants=({"edge_features": 2},),
    build=GraphTransformer,
)
