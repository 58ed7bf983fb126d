"""Sums over edges: the plain sums, and their gradients to second order."""

import pytest
import torch
from hypothesis import given, settings

from attnlab.structures.edge_sums import Edges, collected, products
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from tests.structures.test_graph import graphs

HEADS, WIDTH = 2, 3


def drawn(graph: Graph) -> tuple[Edges, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Edges, and weights, queries and keys."""
    edges = GraphBatch.of([graph]).by_ends
    shapes = (len(graph.edges), HEADS), *[(graph.nodes, HEADS, WIDTH)] * 2
    made = (torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes)
    return edges, *made


@settings(deadline=None, max_examples=30)
@given(graphs())
def test_both_are_sums_over_the_edges(graph: Graph) -> None:
    edges, weights, q, k = drawn(graph)
    scores, total = torch.zeros_like(weights), torch.zeros_like(q)
    ends = zip(edges.sources.tolist(), edges.targets.tolist(), strict=True)
    for edge, (source, target) in enumerate(ends):
        for head in range(HEADS):
            scores[edge, head] = q[target, head] @ k[source, head]
            total[target, head] += weights[edge, head] * k[source, head]
    torch.testing.assert_close(products(q, k, edges), scores)
    torch.testing.assert_close(collected(weights, k, edges), total)


@settings(deadline=None, max_examples=30)
@given(graphs())
def test_turned_round_twice_they_are_as_they_were(graph: Graph) -> None:
    edges = GraphBatch.of([graph]).by_ends
    turned = edges.turned()
    assert (turned.targets.diff() >= 0).all()
    for mine, theirs in zip(turned.turned(), edges, strict=True):
        assert torch.equal(mine, theirs)
    other = Edges.of(turned.targets, turned.sources, graph.nodes)
    for name in ("targets", "sources", "first"):
        assert torch.equal(getattr(turned, name), getattr(other, name))


@pytest.mark.parametrize("edges", [[(0, 1), (0, 1), (2, 1), (3, 3), (1, 0)], []])
def test_gradients(edges: list) -> None:
    """By finite differences, to second order; parallel edges, a loop, no edges at all."""
    made, weights, q, k = drawn(Graph(5, edges))
    assert torch.autograd.gradcheck(lambda q, k: products(q, k, made), (q, k))
    assert torch.autograd.gradgradcheck(lambda q, k: products(q, k, made), (q, k))
    assert torch.autograd.gradcheck(lambda w, v: collected(w, v, made), (weights, k))
    assert torch.autograd.gradgradcheck(lambda w, v: collected(w, v, made), (weights, k))
