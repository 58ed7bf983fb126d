"""Checks of lesson 53: how many tokens a graph has, what identifiers tell, a step of messages."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- how many tokens

ATOMS, BONDS = 20, 22

check_token_count = NumberExercise(
    "Is it 1 + n + m for a molecule of 20 atoms and 22 bonds, each of them two edges?",
    right=1 + ATOMS + 2 * BONDS,
    unit="tokens",
    mistakes={
        ATOMS + 2 * BONDS: "The token of the graph itself is missing.",
        1 + ATOMS + BONDS: "An edge leads one way: a bond without a direction is two edges.",
        ATOMS + BONDS: "A bond is two edges, one each way, and the graph has a token of its own.",
        ATOMS: "Those are the atoms. Edges are tokens, too.",
        1 + ATOMS + ATOMS * (ATOMS - 1): (
            "Only the edges that are there become tokens, not all pairs."
        ),
    },
)


# ---- what the product of two identifiers tells

_EDGES = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 1], [3, 3], [1, 4], [4, 2]])


def _identifiers(nodes: int, width: int, seed: int) -> Tensor:
    """Orthonormal rows (n, r)."""
    return torch.linalg.qr(random_tensors((width, width), seed=seed)[0])[0][:nodes]


def _incident(P: Tensor, edges: Tensor, *, ends: tuple[int, ...] = (0, 1)) -> Tensor:
    return sum((P @ P[edges[:, end]].mT for end in ends), P.new_zeros(()))


def _incident_cases() -> Iterator[Arguments]:
    yield {"P": _identifiers(5, 6, seed=53), "edges": _EDGES}


check_incident = Exercise(
    """How many ends has each edge at each node? `incident(P, edges) -> (n, m)`.

    `P` (n, r) are orthonormal identifiers, `edges` (m, 2) source and target. Called with n = 5,
    r = 6, m = 7, among the edges a loop and two from 0 to 1.
    """,
    right=_incident,
    cases=_incident_cases,
    axes="n m",
    mistakes={
        but(ends=(0,)): (
            "Only the sources of edges are compared with the node: add the product with the target."
        ),
        but(ends=(1,)): (
            "Only the targets of edges are compared with the node: add the product with the source."
        ),
        (lambda P, edges: _incident(P, edges, ends=(0,)) * _incident(P, edges, ends=(1,))): (
            "Both products are multiplied: they are added, since a dot product of pairs is the sum "
            "of the dot products."
        ),
        (lambda P, edges: _incident(P, edges) / 2): (
            "The scores of both ends are averaged: their sum counts the ends."
        ),
        (lambda P, edges: _incident(P, edges).clamp(max=1)): (
            "A loop at a node has two ends there: the score is 2."
        ),
        (lambda P, edges: _incident(P, edges).softmax(-1)): (
            "These are weights, after a softmax; return the scores."
        ),
    },
    praise="A query [P, P] and keys [P, P] count the nodes that two tokens share.",
)


# ---- the adjacency from identifiers


def _recovered(nodes: Tensor, edges: Tensor, *, ends: tuple[int, int] = (1, 0)) -> Tensor:
    at, of = (nodes @ edges[:, end].mT for end in ends)  # (n, m): 1 where the edge has this end
    return at @ of.mT


def _both_ways(nodes: Tensor, edges: Tensor) -> Tensor:
    found = nodes @ edges.sum(1).mT
    return found @ found.mT


def _recovered_cases() -> Iterator[Arguments]:
    P = _identifiers(5, 6, seed=54)
    yield {"nodes": P, "edges": P[_EDGES]}


check_recovered = Exercise(
    """How many edges lead to i from j? `recovered(nodes, edges) -> (n, n)`.

    `nodes` (n, r) are the identifiers of the nodes, `edges` (m, 2, r) those of the source and of
    the target of each edge. Called with n = 5, r = 6, m = 7.
    """,
    right=_recovered,
    cases=_recovered_cases,
    axes="n n",
    mistakes={
        but(ends=(0, 1)): (
            "The directions are exchanged: row i belongs to the node to which the edges lead."
        ),
        _both_ways: (
            "Source and target are not told apart: the product B Bᵀ counts edges both ways, and on "
            "its diagonal the ends at each node."
        ),
        (lambda nodes, edges: _recovered(nodes, edges).clamp(max=1)): (
            "Several edges between two nodes count each: do not cut the entries at 1."
        ),
        (
            lambda nodes, edges: (
                _recovered(nodes, edges) * (1 - torch.eye(len(nodes), dtype=nodes.dtype))
            )
        ): ("Loops are missing: an edge from a node to itself stands on the diagonal."),
        but(ends=(0, 0)): "Sources are compared with sources: the two factors read different ends.",
    },
    praise="The identifiers hold the whole graph: two products give it back.",
)


# ---- a step of messages


def _step(
    P: Tensor, edges: Tensor, x: Tensor, c: float, *,
    ends: tuple[int, int] = (0, 1), null: float | None = 0.5, first: bool = True,
    root: bool = False,
) -> Tensor:  # fmt: skip
    """Two heads; every keyword is a mistake."""
    own, other = (P[edges[:, end]] for end in ends)
    scale = P.shape[1] ** -0.5 if root else 1.0
    read = (scale * c * own @ P.mT).softmax(-1) @ x if first else x[edges[:, ends[0]]]
    scores = scale * c * P @ other.mT  # (n, m)
    if null is None:
        return scores.softmax(-1) @ read
    beside = scores.new_full((len(P), 1), null * c)
    return torch.cat([beside, scores], dim=1).softmax(-1)[:, 1:] @ read


def _given(c: float) -> Arguments:
    """Nodes 0 and 5 have no edge that leads to them."""
    edges = torch.tensor([[0, 1], [2, 1], [1, 2], [3, 4], [0, 4], [5, 4], [4, 3]])
    (x,) = random_tensors((6, 3), seed=55)
    return {"P": _identifiers(6, 7, seed=56), "edges": edges, "x": x, "c": c}


def _message_step_cases() -> Iterator[Arguments]:
    for c in (3.0, 40.0):
        yield _given(c)


check_message_step = Exercise(
    """Do two heads pass vectors along edges? `step(P, edges, x, c) -> (n, e)`.

    Each edge attends to the nodes, with the scores c times (identifier of its source · P). Then
    each node attends to the edges, with the scores c times (P · identifier of their targets), and
    to a null token with the score c/2 and the value 0. Called with n = 6, m = 7, e = 3, with a
    small and a large c.
    """,
    right=_step,
    cases=_message_step_cases,
    axes="n e",
    mistakes={
        but(ends=(1, 0)): (
            "The messages go the wrong way: the first head reads the source of an edge, the second "
            "lets a node attend to the edges that lead to it."
        ),
        but(ends=(0, 0)): (
            "Both heads read the sources: a node would attend to the edges that leave it."
        ),
        but(ends=(1, 1)): (
            "Both heads read the targets: an edge would carry the vector of its own target."
        ),
        but(null=None): (
            "The null token is missing: a node to which no edge leads gets the mean over all edges."
        ),
        but(null=0.0): (
            "The null token has the score 0, as edges that lead elsewhere have: with c/2 it gets "
            "nearly all the weight where no edge leads to the node."
        ),
        but(null=1.0): (
            "The null token has the score c, as an edge that leads to the node has: it would take "
            "a share of every mean. Give it c/2."
        ),
        but(first=False): (
            "The first head is no softmax over the nodes: the vector of the source is looked up "
            "directly. With a small c the weights are soft."
        ),
        but(root=True): (
            "The scores are divided by √r: the identifiers have length 1, and c sets the scale."
        ),
    },
    praise="With a large c this is the mean over the neighbours: message passing by two heads.",
)
