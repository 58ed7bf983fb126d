"""Batches of graphs of different sizes, compared with loops over the edges of each."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import EXAMPLE_FEATURES, GraphBatch
from attnlab.structures.tree_batch import TreeBatch
from tests.structures.test_graph import graphs, listed

LISTS = st.lists(graphs(features=1), min_size=1, max_size=4)


@settings(deadline=None, max_examples=50)
@given(LISTS, st.integers(0, 3))
def test_every_graph_is_found_again(given_graphs: list[Graph], more: int) -> None:
    length = max(graph.nodes for graph in given_graphs) + more
    batch = GraphBatch.of(given_graphs, length)
    assert batch.padding.shape == (len(given_graphs), length)
    assert len(batch) == len(given_graphs)
    for row, graph in enumerate(given_graphs):
        assert int(batch.padding[row].sum()) == graph.nodes
        assert listed(batch.graph(row)) == listed(graph)
        assert int(batch.edge_padding[row].sum()) == len(graph.edges)
    ends = list(zip(batch.targets.tolist(), batch.sources.tolist(), strict=True))
    assert ends == sorted(ends)
    assert batch.edge_padding.flatten()[batch.places].all()
    assert len(set(batch.places.tolist())) == len(ends)
    assert torch.equal(batch.places // max(batch.edge_padding.shape[1], 1), batch.targets // length)


@settings(deadline=None, max_examples=30)
@given(LISTS)
def test_pairs_of_nodes(given_graphs: list[Graph]) -> None:
    batch = GraphBatch.of(given_graphs)
    counts = torch.zeros_like(batch.counts)
    values = torch.randn(len(batch.sources), 2).double()
    spread = torch.zeros(len(batch), 2, *counts.shape[1:]).double()
    n = counts.shape[1]
    for edge, (j, i) in enumerate(zip(batch.sources.tolist(), batch.targets.tolist(), strict=True)):
        assert edge in batch.slots[i // n, i % n, j % n]
        counts[i // n, i % n, j % n] += 1
        spread[i // n, :, i % n, j % n] += values[edge]
    assert torch.equal(batch.counts, counts)
    assert torch.equal((batch.slots >= 0).sum(-1), counts)
    assert batch.slots.shape[3] == max(int(counts.max()), 1)
    torch.testing.assert_close(batch.spread(values), spread)


@settings(deadline=None, max_examples=30)
@given(LISTS)
def test_sums_and_softmax_over_the_edges_of_a_node(given_graphs: list[Graph]) -> None:
    batch = GraphBatch.of(given_graphs)
    m = len(batch.sources)
    values, scores = torch.randn(m, 3, 2).double(), torch.randn(m, 3).double() * 30
    sums, weights = batch.summed(values), batch.softmax(scores)
    for token in range(batch.padding.numel()):
        own = [edge for edge in range(m) if int(batch.targets[edge]) == token]
        torch.testing.assert_close(sums[token], values[own].sum(0))
        torch.testing.assert_close(weights[own], scores[own].softmax(0))


@settings(deadline=None, max_examples=30)
@given(LISTS, st.integers(0, 3), st.integers(1, 4), st.integers(1, 2))
def test_rows_are_cut_out(given_graphs: list[Graph], start: int, stop: int, step: int) -> None:
    cut = GraphBatch.of(given_graphs)[start:stop:step]
    wanted = given_graphs[start:stop:step]
    assert len(cut) == len(wanted)
    for row, graph in enumerate(wanted):
        assert listed(cut.graph(row)) == listed(graph)


def test_the_example() -> None:
    """Only the tokens that are real count, wherever they stand."""
    batch = GraphBatch.example(torch.tensor([[True, False, True, True], [False] * 4]))
    path = [(0, 1), (1, 0), (1, 2), (2, 1)]
    edges = sorted(map(tuple, batch.graph(0).edges.tolist()))
    assert edges == sorted([*path, (0, 1)])
    assert not batch.edge_padding[1].any()
    assert batch.features.shape == (5, EXAMPLE_FEATURES)
    alone = GraphBatch.example(torch.ones(1, 3, dtype=torch.bool))
    assert listed(alone.graph(0)) == listed(batch.graph(0))
    assert len(GraphBatch.example(torch.ones(0, 4, dtype=torch.bool))) == 0


def test_pooled_is_the_mean_of_nodes() -> None:
    batch = GraphBatch.example(torch.tensor([[True, False, True], [False] * 3]))
    x = torch.randn(2, 3, 5)
    x[0, 1] = torch.nan
    torch.testing.assert_close(batch.pooled(x), torch.stack([x[0, [0, 2]].mean(0), x[1, 0] * 0]))


def test_what_is_no_batch() -> None:
    small, large = Graph(2, [(0, 1)]), Graph(5)
    with pytest.raises(ValueError, match="at least one graph"):
        GraphBatch.of([])
    with pytest.raises(TypeError, match=r"a list of Graph .*got \[3\]"):
        GraphBatch.of([3])
    with pytest.raises(ValueError, match="graph 1 has 5 nodes, which is more than length=4"):
        GraphBatch.of([small, large], length=4)
    with pytest.raises(ValueError, match="those of graph 0 have 0 and those of graph 1 1"):
        GraphBatch.of([small, Graph(2, [(0, 1)], None, [[2.0]])])
    batch = GraphBatch.of([small])
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match=r"give structure=GraphBatch\.of\(graphs\)"):
        GraphBatch.fitting(None, x, None)
    with pytest.raises(TypeError, match="should be a GraphBatch, got a TreeBatch"):
        GraphBatch.fitting(TreeBatch.example(batch.padding), x, None)
    with pytest.raises(ValueError, match="1 sequences of 2 tokens, but there are 1 of 4"):
        GraphBatch.fitting(batch, torch.zeros(1, 4, 3), None)
    with pytest.raises(ValueError, match="there are 1 graphs, got row 1"):
        batch.graph(1)
