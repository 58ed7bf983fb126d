"""Eigenvectors of the Laplacian against numpy, known spectra, and in subspaces."""

import math

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from attnlab.structures import laplacian
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.structures.laplacian import components, spectrum
from tests.structures.test_graph import graphs


def of(*given_graphs: networkx.Graph) -> GraphBatch:
    return GraphBatch.of([Graph.of_networkx(graph) for graph in given_graphs])


@pytest.mark.parametrize("n", [2, 3, 7, 11])
def test_the_spectra_of_paths_and_complete_graphs(n: int) -> None:
    found = spectrum(of(networkx.path_graph(n), networkx.complete_graph(n)), n, trivial=True)
    path = [1 - math.cos(math.pi * k / (n - 1)) for k in range(n)]
    torch.testing.assert_close(found.values[0], torch.tensor(path).double(), atol=1e-6, rtol=0)
    complete = [0.0] + [n / (n - 1)] * (n - 1)
    torch.testing.assert_close(found.values[1], torch.tensor(complete).double(), atol=1e-6, rtol=0)
    assert found.groups[1].tolist() == [0] + [1] * (n - 1)
    assert len(set(found.groups[0].tolist())) == n


@settings(deadline=None, max_examples=40)
@given(graphs())
def test_values_are_those_of_networkx(graph: Graph) -> None:
    """Of (A + Aᵀ) / 2, several edges counted as often as they are there."""
    counts = np.zeros((graph.nodes, graph.nodes))
    for source, target in graph.edges.tolist():
        counts[source, target] += 0.5
        counts[target, source] += 0.5
    other = networkx.from_numpy_array(counts)
    wanted = np.linalg.eigvalsh(networkx.normalized_laplacian_matrix(other).toarray())
    found = spectrum(GraphBatch.of([graph], length=8), graph.nodes, trivial=True)
    torch.testing.assert_close(found.values[0], torch.from_numpy(wanted), atol=1e-8, rtol=0)
    vectors = found.vectors[0, : graph.nodes]
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(graph.nodes).double())
    assert (found.vectors[0, graph.nodes :] == 0).all()
    matrix = torch.from_numpy(networkx.normalized_laplacian_matrix(other).toarray())
    torch.testing.assert_close(matrix @ vectors, vectors * found.values[0])
    parts = networkx.number_connected_components(other)
    assert int((found.values[0].abs() < 1e-9).sum()) == parts
    without = spectrum(GraphBatch.of([graph], length=8), graph.nodes).values[0]
    kept = graph.nodes - parts
    torch.testing.assert_close(without[:kept], found.values[0, parts:])
    assert (without[kept:] == 0).all()


def test_components_of_every_shape() -> None:
    for seed in range(30):
        other = networkx.gnm_random_graph(23, 17, seed=seed)
        labels = components(23, torch.tensor(list(other.edges)))
        for part in networkx.connected_components(other):
            assert {int(labels[node]) for node in part} == {min(part)}
    chain = torch.tensor([[i + 1, i] for i in range(500)])
    assert (components(501, chain[torch.randperm(500)]) == 0).all()


def test_numbering_changes_subspaces_as_it_should() -> None:
    """Projectors of the circle, whose eigenvalues are repeated; the vectors alone may differ."""
    n = 9
    order = torch.randperm(n)
    circle = Graph.of_networkx(networkx.cycle_graph(n))
    moved = Graph(n, order[circle.edges])
    one, other = (spectrum(GraphBatch.of([graph]), n - 1) for graph in (circle, moved))
    assert one.groups[0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for group in range(4):
        found = other.projector(0, group)[order][:, order]
        torch.testing.assert_close(found, one.projector(0, group))


def test_signs_and_bases_are_drawn_within_subspaces() -> None:
    batch = of(networkx.cycle_graph(7), networkx.path_graph(7))
    found = spectrum(batch, 6)
    flipped = found.flipped(torch.Generator().manual_seed(1))
    assert torch.equal(flipped.abs(), found.vectors.abs())
    signs = (flipped * found.vectors).sum(1).sign()
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(flipped, found.flipped(torch.Generator().manual_seed(1)))
    turned = laplacian.Spectrum(found.values, found.turned(torch.Generator().manual_seed(2)))
    for row in range(2):
        for group in set(found.groups[row].tolist()):
            torch.testing.assert_close(turned.projector(row, group), found.projector(row, group))
    assert (turned.vectors[0].abs() - found.vectors[0].abs()).abs().max() > 0.05
    torch.testing.assert_close(turned.vectors[1].abs(), found.vectors[1].abs())


@pytest.mark.parametrize("make", [
    lambda: networkx.random_regular_graph(4, 150, seed=1),
    lambda: networkx.path_graph(160),
    lambda: networkx.disjoint_union(networkx.grid_2d_graph(9, 14), networkx.star_graph(30)),
])  # fmt: skip
def test_the_sparse_solver_finds_the_same(make) -> None:  # type: ignore[no-untyped-def]
    batch = of(make())
    dense, sparse = (spectrum(batch, 9, solver=solver) for solver in ("dense", "sparse"))
    torch.testing.assert_close(sparse.values, dense.values, atol=1e-7, rtol=0)
    whole = [group for group in dense.groups[0].unique().tolist() if group < dense.groups[0].max()]
    for group in whole:  # the last may be cut
        one, other = (each.projector(0, group) for each in (dense, sparse))
        torch.testing.assert_close(other, one, atol=1e-6, rtol=0)


def test_errors() -> None:
    batch = of(networkx.path_graph(5))
    with pytest.raises(ValueError, match="fewer eigenvectors than nodes, but 5 are wanted"):
        spectrum(batch, 4, solver="sparse")
    with pytest.raises(ValueError, match="count should be at least 1"):
        spectrum(batch, 0)
    with pytest.raises(ValueError, match="solver"):
        spectrum(batch, 2, solver="fast")


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplacian, "_scipy", lambda: None)
    monkeypatch.setattr(laplacian, "DENSE", 3)
    batch = of(networkx.path_graph(5))
    assert spectrum(batch, 2).values.shape == (1, 2)
    with pytest.raises(ImportError, match="pip install scipy"):
        spectrum(batch, 2, solver="sparse")


def test_an_empty_batch_and_padding_alone() -> None:
    none = GraphBatch.example(torch.ones(0, 3, dtype=torch.bool))
    assert spectrum(none, 2).vectors.shape == (0, 3, 2)
    padded = GraphBatch.example(torch.zeros(2, 3, dtype=torch.bool))
    assert (spectrum(padded, 2, trivial=True).vectors == 0).all()
