"""Laplacian positions: eigenvectors of each graph, found by numpy, added by a linear map."""

import numpy as np
import pytest
import torch

import attnlab
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

DIM = 6


def built(**options: object) -> torch.nn.Module:
    torch.manual_seed(1)
    layer = attnlab.build("laplacian", dim=DIM, **options).double()
    torch.nn.init.normal_(layer.bias)
    return layer.eval()


def by_numpy(graph: Graph, count: int) -> np.ndarray:
    """Eigenvectors of a connected graph without directions, the constant one left out."""
    adjacency = np.zeros((graph.nodes, graph.nodes))
    for source, target in graph.edges.tolist():
        adjacency[target, source] += 1
    root = np.diag(adjacency.sum(1) ** -0.5)
    return np.linalg.eigh(np.eye(graph.nodes) - root @ adjacency @ root)[1][:, 1 : 1 + count]


def test_two_graphs_by_numpy() -> None:
    """Up to signs, which are read from what was added."""
    path = Graph(5, [(i, i + 1) for i in range(4)]).both_ways()
    tree = Graph(4, [(0, 1), (1, 2), (1, 3), (2, 3)]).both_ways()
    layer = built(count=2)
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    out = layer(x, structure=GraphBatch.of([path, tree]))
    added = (out - x - layer.bias).detach()
    for row, graph in enumerate((path, tree)):
        found = added[row] @ torch.linalg.pinv(layer.weight.detach())
        wanted = torch.from_numpy(by_numpy(graph, 2))
        signs = (found[: graph.nodes] * wanted).sum(0).sign()
        torch.testing.assert_close(found[: graph.nodes], wanted * signs)
    torch.testing.assert_close(added[1, 4], torch.zeros(DIM).double())


def test_signs_are_drawn_in_training_alone() -> None:
    structure = GraphBatch.example(torch.ones(3, 7, dtype=torch.bool))
    layer, x = built(count=4), torch.randn(3, 7, DIM, dtype=torch.float64)
    one = layer(x, structure=structure)
    assert torch.equal(layer(x, structure=structure), one)
    layer.train()
    drawn = [layer(x, structure=structure) for _ in range(5)]
    assert any(not torch.allclose(each, drawn[0]) for each in drawn)
    inverse = torch.linalg.pinv(layer.weight.detach())
    sizes = [((out - x - layer.bias) @ inverse).abs() for out in (one, *drawn)]
    for size in sizes[1:]:
        torch.testing.assert_close(size, sizes[0])


def test_the_basis_of_a_repeated_eigenvalue_is_drawn() -> None:
    """On a circle the first two eigenvectors are turned in their plane: lengths stay."""
    circle = Graph(7, [(i, (i + 1) % 7) for i in range(7)]).both_ways()
    structure = GraphBatch.of([circle])
    layer, x = built(count=2, basis=True), torch.zeros(1, 7, DIM, dtype=torch.float64)
    inverse = torch.linalg.pinv(layer.weight.detach())
    fixed = (layer(x, structure=structure) - layer.bias) @ inverse
    turned = (layer.train()(x, structure=structure) - layer.bias) @ inverse
    torch.testing.assert_close(turned.norm(dim=-1), fixed.norm(dim=-1))
    assert (turned.abs() - fixed.abs()).abs().max() > 1e-3


def test_a_graph_model_with_positions() -> None:
    model = attnlab.TinyTransformer(
        features=3, classes=2, kind="classifier", dim=12, heads=2, layers=1,
        attention="graph_transformer", positions="laplacian", position_options={"count": 3},
    ).eval()  # fmt: skip
    x = torch.randn(2, 5, 3)
    structure = GraphBatch.of([Graph(5, [(0, 1)]), Graph(3, [(2, 0)])])
    assert model(x, structure=structure).shape == (2, 2)
    with pytest.raises(ValueError, match=r"give structure=GraphBatch"):
        model(x)
