"""Checks of lesson 52: how far layers reach, a mask, a Laplacian, attention over edges."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_square

EDGES = torch.tensor([[0, 1], [2, 1], [1, 3], [3, 3], [4, 0], [3, 2], [2, 1]])
"""Of six nodes: a loop, two edges from 2 to 1, and no edge to the nodes 4 and 5."""

NODES = 300  # of the ring that shows whether all pairs are made

# ---- how far layers reach

check_ring_layers = NumberExercise(
    "After how many layers can each node of a ring of 12 depend on all others?",
    right=12 // 2,
    unit="layers",
    mistakes={
        11: (
            "A layer reaches both neighbours, so a vector travels round the ring on both sides at "
            "once."
        ),
        12: "After one layer three nodes are reached, after two layers five: 12 are too many.",
        5.5: (
            "Eleven other nodes, two in each layer; but there is no half layer, and after five "
            "layers one node is left."
        ),
        5: "Five layers reach five nodes on each side and the node itself: eleven of the twelve.",
        2: "A node has two neighbours, but one layer reaches no further than them.",
    },
)


# ---- the mask


def _mask(n: int, edges: Tensor) -> Tensor:
    allowed = torch.zeros(n, n, dtype=torch.bool)
    allowed[edges[:, 1], edges[:, 0]] = True
    return allowed


check_graph_mask = Exercise(
    """Is it the mask of a graph? `mask(n, edges)`.

    `edges` (m, 2) are pairs (source, target); it returns (n, n) bool, True where the node of the
    row may attend to the node of the column.
    """,
    right=_mask,
    cases=lambda: [{"n": 6, "edges": EDGES}],
    axes="n n",
    mistakes={
        (lambda n, edges: _mask(n, edges).T): (
            "Rows and columns are exchanged: the row is the node that attends, the target of the "
            "edge."
        ),
        (lambda n, edges: _mask(n, edges) | _mask(n, edges).T): (
            "Every edge counts in both directions: an edge lets its target attend to its source, "
            "and not the other way round."
        ),
        (lambda n, edges: _mask(n, edges) | torch.eye(n, dtype=torch.bool)): (
            "Each node attends to itself, too: it may do so only where the list has a loop."
        ),
        (lambda n, edges: ~_mask(n, edges)): (
            "True should stand where a node may attend; here it stands elsewhere."
        ),
    },
    praise="An edge from j to i is one True, in row i and column j.",
)


# ---- the Laplacian


def _laplacian(A: Tensor) -> Tensor:
    roots = A.sum(1).sqrt()
    return torch.eye(len(A), dtype=A.dtype) - A / (roots[:, None] * roots)


def _laplacian_cases() -> Iterator[Arguments]:
    pairs = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]])
    A = torch.zeros(5, 5, dtype=torch.float64)
    A[pairs[:, 0], pairs[:, 1]] = 1
    yield {"A": A + A.T}


check_laplacian = Exercise(
    """Is it the normalised Laplacian? `laplacian(A)`, of a symmetric adjacency A (n, n).

    Every node has a neighbour. It returns (n, n).
    """,
    right=_laplacian,
    cases=_laplacian_cases,
    axes="n n",
    mistakes={
        (lambda A: torch.diag(A.sum(1)) - A): (
            "This is D − A, without the normalisation: divide entry (i, j) of A by the roots of "
            "both degrees."
        ),
        (lambda A: torch.eye(len(A), dtype=A.dtype) - A / A.sum(1, keepdim=True)): (
            "Each row is divided by its degree, so the matrix is not symmetric: divide by the "
            "roots of the degrees of row and column."
        ),
        (lambda A: torch.eye(len(A), dtype=A.dtype) - A / (A.sum(1)[:, None] * A.sum(1))): (
            "The product of the two degrees is there, but not its root."
        ),
        (lambda A: torch.eye(len(A), dtype=A.dtype) - _laplacian(A)): (
            "This is the normalised adjacency itself: subtract it from the identity."
        ),
    },
    praise="Its rows times the roots of the degrees are zero: the trivial eigenvector.",
)


# ---- attention over a list of edges


def _attend(
    q: Tensor, k: Tensor, v: Tensor, edges: Tensor, *, scale: bool = True, once: bool = False,
    turned: bool = False, by_source: bool = False, loops: bool = False,
) -> Tensor:  # fmt: skip
    if once:
        edges = edges.unique(dim=0)
    if loops:
        own = torch.arange(len(q))
        edges = torch.cat([edges, torch.stack([own, own], 1)])
    source, target = (edges.flip(1) if turned else edges).unbind(1)
    powers = ((q[target] * k[source]).sum(1) * (q.shape[1] ** -0.5 if scale else 1)).exp()
    sums = powers.new_zeros(len(q)).index_add(0, source if by_source else target, powers)
    weights = powers / sums[source if by_source else target]
    return torch.zeros_like(v).index_add(0, target, weights[:, None] * v[source])


def _edge_attention_cases() -> Iterator[Arguments]:
    q, k, v = random_tensors((6, 5), (6, 5), (6, 3), seed=52)
    yield {"q": q, "k": k, "v": v, "edges": EDGES}


def _edge_attention_then(function: Function, given: Arguments) -> None:
    q, k, v = random_tensors((NODES, 5), (NODES, 5), (NODES, 3), seed=53)
    ring = torch.arange(NODES)[:, None]
    edges = torch.cat([ring, (ring + 1) % NODES], 1)
    large = {"q": q, "k": k, "v": v, "edges": edges}
    require_no_square(function, large, NODES, "Go along the edges.")


check_edge_attention = Exercise(
    """Is it attention over the edges? `attend(q, k, v, edges)`.

    One head: q and k are (n, d), v is (n, e), `edges` (m, 2) are pairs (source, target). It returns
    (n, e); a node to which no edge leads has zeros.
    """,
    right=_attend,
    cases=_edge_attention_cases,
    axes="n e",
    mistakes={
        but(scale=False): "The scores are not divided by the root of d.",
        but(turned=True): "The edges are followed backwards: the target attends to the source, so "
        "the query is that of the target, and the value that of the source.",
        but(by_source=True): "The weights sum to one over the edges that leave a node: they should "
        "do so over the edges that lead to it.",
        but(once=True): (
            "Two edges between the same nodes are taken for one: each is a term of the softmax."
        ),
        but(loops=True): "Each node attends to itself as well; the list decides about loops.",
        (
            lambda q, k, v, edges: torch.zeros_like(v).index_add(
                0,
                edges[:, 1],
                ((q[edges[:, 1]] * k[edges[:, 0]]).sum(1) * q.shape[1] ** -0.5).softmax(0)[:, None]
                * v[edges[:, 0]],
            )
        ): ("One softmax runs over all edges of the graph: each node has a softmax of its own."),
        (
            lambda q, k, v, edges: _attend(q, k, v, edges).masked_fill(
                ~torch.isin(torch.arange(len(q)), edges[:, 1])[:, None], torch.nan
            )
        ): (
            "The nodes to which no edge leads are NaN: zero divided by zero. Their output is zero."
        ),
    },
    praise="Every node has a softmax over its own edges, and no n × n matrix was needed.",
    then=_edge_attention_then,
)
