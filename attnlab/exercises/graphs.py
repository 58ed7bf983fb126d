"""Checks of lesson 52: how far layers reach, a mask, a Laplacian, attention over edges."""

from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import check_number
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    check_arguments,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, Verdict, returns_verdict
from attnlab.exercises.work import require_no_square

EDGES = torch.tensor([[0, 1], [2, 1], [1, 3], [3, 3], [4, 0], [3, 2], [2, 1]])
"""Of six nodes: a loop, two edges from 2 to 1, and no edge to the nodes 4 and 5."""

NODES = 300  # of the ring that shows whether all pairs are made

# ---- how far layers reach

_REACH_MISTAKEN = {
    11.0: "A layer reaches both neighbours, so a vector travels round the ring on both sides at "
    "once.",
    12.0: "After one layer three nodes are reached, after two layers five: 12 are too many.",
    5.5: "Eleven other nodes, two in each layer; but there is no half layer, and after five layers "
    "one node is left.",
    5.0: "Five layers reach five nodes on each side and the node itself: eleven of the twelve.",
    2.0: "A node has two neighbours, but one layer reaches no further than them.",
}


def check_ring_layers(layers: object) -> Verdict:
    """After how many layers can each node of a ring of 12 depend on all others?"""
    return check_number(layers, 6, unit="layers", mistakes=_REACH_MISTAKEN)


# ---- the mask


def _mask(n: int, edges: Tensor) -> Tensor:
    allowed = torch.zeros(n, n, dtype=torch.bool)
    allowed[edges[:, 1], edges[:, 0]] = True
    return allowed


_MASK_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Rows and columns are exchanged: the row is the node that attends, the target of the edge.",
        lambda n, edges: _mask(n, edges).T,
    ),
    (
        "Every edge counts in both directions: an edge lets its target attend to its source, and "
        "not the other way round.",
        lambda n, edges: _mask(n, edges) | _mask(n, edges).T,
    ),
    (
        "Each node attends to itself, too: it may do so only where the list has a loop.",
        lambda n, edges: _mask(n, edges) | torch.eye(n, dtype=torch.bool),
    ),
    ("True should stand where a node may attend; here it stands elsewhere.",
     lambda n, edges: ~_mask(n, edges)),
)  # fmt: skip


@returns_verdict
def check_graph_mask(function: Function) -> str:
    """Is it the mask of a graph? `mask(n, edges)`.

    `edges` (m, 2) are pairs (source, target); it returns (n, n) bool, True where the node of the
    row may attend to the node of the column.
    """
    given: Arguments = {"n": 6, "edges": EDGES}
    require(function, given, _mask, shape="n n", known_mistakes=_MASK_MISTAKEN)
    check_arguments(function, given)
    return "An edge from j to i is one True, in row i and column j."


# ---- the Laplacian


def _laplacian(A: Tensor) -> Tensor:
    roots = A.sum(1).sqrt()
    return torch.eye(len(A), dtype=A.dtype) - A / (roots[:, None] * roots)


_LAPLACIAN_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "This is D − A, without the normalisation: divide entry (i, j) of A by the roots of both "
        "degrees.",
        lambda A: torch.diag(A.sum(1)) - A,
    ),
    (
        "Each row is divided by its degree, so the matrix is not symmetric: divide by the roots of "
        "the degrees of row and column.",
        lambda A: torch.eye(len(A), dtype=A.dtype) - A / A.sum(1, keepdim=True),
    ),
    (
        "The product of the two degrees is there, but not its root.",
        lambda A: torch.eye(len(A), dtype=A.dtype) - A / (A.sum(1)[:, None] * A.sum(1)),
    ),
    (
        "This is the normalised adjacency itself: subtract it from the identity.",
        lambda A: torch.eye(len(A), dtype=A.dtype) - _laplacian(A),
    ),
)


@returns_verdict
def check_laplacian(function: Function) -> str:
    """Is it the normalised Laplacian? `laplacian(A)`, of a symmetric adjacency A (n, n).

    Every node has a neighbour. It returns (n, n).
    """
    pairs = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]])
    A = torch.zeros(5, 5, dtype=torch.float64)
    A[pairs[:, 0], pairs[:, 1]] = 1
    given: Arguments = {"A": A + A.T}
    require(function, given, _laplacian, shape="n n", known_mistakes=_LAPLACIAN_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Its rows times the roots of the degrees are zero: the trivial eigenvector."


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


_ATTEND_MISTAKEN: tuple[KnownMistake, ...] = (
    ("The scores are not divided by the root of d.", partial(_attend, scale=False)),
    (
        "The edges are followed backwards: the target attends to the source, so the query is that "
        "of the target, and the value that of the source.",
        partial(_attend, turned=True),
    ),
    (
        "The weights sum to one over the edges that leave a node: they should do so over the edges "
        "that lead to it.",
        partial(_attend, by_source=True),
    ),
    (
        "Two edges between the same nodes are taken for one: each is a term of the softmax.",
        partial(_attend, once=True),
    ),
    (
        "Each node attends to itself as well; the list decides about loops.",
        partial(_attend, loops=True),
    ),
    (
        "One softmax runs over all edges of the graph: each node has a softmax of its own.",
        lambda q, k, v, edges: torch.zeros_like(v).index_add(
            0,
            edges[:, 1],
            ((q[edges[:, 1]] * k[edges[:, 0]]).sum(1) * q.shape[1] ** -0.5).softmax(0)[:, None]
            * v[edges[:, 0]],
        ),
    ),
    (
        "The nodes to which no edge leads are NaN: zero divided by zero. Their output is zero.",
        lambda q, k, v, edges: _attend(q, k, v, edges).masked_fill(
            ~torch.isin(torch.arange(len(q)), edges[:, 1])[:, None], torch.nan
        ),
    ),
)


@returns_verdict
def check_edge_attention(function: Function) -> str:
    """Is it attention over the edges? `attend(q, k, v, edges)`.

    One head: q and k are (n, d), v is (n, e), `edges` (m, 2) are pairs (source, target). It returns
    (n, e); a node to which no edge leads has zeros.
    """
    q, k, v = random_tensors((6, 5), (6, 5), (6, 3), seed=52)
    given: Arguments = {"q": q, "k": k, "v": v, "edges": EDGES}
    require(function, given, _attend, shape="n e", known_mistakes=_ATTEND_MISTAKEN)
    check_arguments_and_dtype(function, given)
    q, k, v = random_tensors((NODES, 5), (NODES, 5), (NODES, 3), seed=53)
    ring = torch.arange(NODES)[:, None]
    edges = torch.cat([ring, (ring + 1) % NODES], 1)
    large = {"q": q, "k": k, "v": v, "edges": edges}
    require_no_square(function, large, NODES, "Go along the edges.")
    return "Every node has a softmax over its own edges, and no n × n matrix was needed."
