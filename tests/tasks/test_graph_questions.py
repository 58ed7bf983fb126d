"""Questions about graphs: answers by matrices, equal classes, what the number of edges tells."""

from collections import Counter

import networkx
import pytest
import torch

from attnlab.structures.graph import Graph
from attnlab.tasks import UNSCORED
from attnlab.tasks.graph_questions import GraphQuestions, distances, triangles
from tests.tasks.shallow import majority_by

DISTANCE = GraphQuestions()
TRIANGLES = GraphQuestions("triangles", nodes=13, fewest=11, most=3)
RINGS = GraphQuestions("rings", nodes=17, fewest=13)


def adjacency(graph: Graph) -> torch.Tensor:
    dense = torch.zeros(graph.nodes, graph.nodes, dtype=torch.long)
    dense[graph.edges[:, 1], graph.edges[:, 0]] = 1
    return dense


@pytest.mark.parametrize("split", ["train", "validation"])
def test_distances_are_the_first_power_of_the_adjacency_that_is_not_zero(split: str) -> None:
    batch = DISTANCE.batch(split, 53, seed=2)
    assert (batch.inputs.sum(1) == 1).all()
    assert (batch.inputs[~batch.padding] == 0).all()
    assert (batch.targets[~batch.padding] == UNSCORED).all()
    for row, (inputs, targets) in enumerate(zip(batch.inputs, batch.targets, strict=True)):
        graph = batch.structure.graph(row)
        dense, marked = adjacency(graph), inputs[: graph.nodes].clone()
        wanted, walks = torch.full((graph.nodes,), UNSCORED), marked
        for step in range(1, DISTANCE.most + 1):
            walks = dense @ walks
            wanted[(walks > 0) & (wanted == UNSCORED) & (marked == 0)] = step
        assert torch.equal(targets[: graph.nodes], wanted)


def test_triangles_are_a_sixth_of_the_trace_of_the_third_power() -> None:
    batch = TRIANGLES.batch("train", 101, seed=3)
    for row, target in enumerate(batch.targets.tolist()):
        dense = adjacency(batch.structure.graph(row))
        assert torch.trace(dense @ dense @ dense) == 6 * target


def test_rings_are_components_in_which_every_node_has_two_neighbours() -> None:
    batch = RINGS.batch("validation", 101, seed=4)
    sizes = Counter()
    for row, target in enumerate(batch.targets.tolist()):
        graph = networkx.Graph(batch.structure.graph(row).to_networkx())
        assert set(dict(graph.degree).values()) == {2}
        parts = [len(part) for part in networkx.connected_components(graph)]
        assert len(parts) == target + 1
        assert min(parts) >= 3
        sizes[sum(parts)] += 1
    assert set(sizes) == {13, 14, 15, 16, 17}


def test_graphs_are_those_of_networkx() -> None:
    """Distances and triangles of graphs that it draws, isolated parts among them."""
    for seed in range(7):
        other = networkx.gnp_random_graph(23, 0.09, seed=seed)
        graph = Graph.of_networkx(other)
        known = networkx.single_source_shortest_path_length(other, 5)
        assert distances(graph, 5) == [known.get(node, -1) for node in range(23)]
        assert triangles(graph) == sum(networkx.triangles(other).values()) // 3


def test_classes_of_graphs_are_equally_frequent() -> None:
    for task in (TRIANGLES, RINGS):
        counts = task.batch("train", 1200, seed=5).targets.bincount(minlength=task.classes)
        assert len(counts) == task.classes == 4
        assert counts.min() > 240


def test_what_the_numbers_of_nodes_and_edges_tell() -> None:
    """Of rings nothing: the most frequent class for each pair of numbers is right for little more
    than a quarter. Of triangles more, for a closed path has one edge more than a tree."""
    found = {}
    for task in (TRIANGLES, RINGS):
        batch = task.batch("train", 1200, seed=6)
        graphs = [batch.structure.graph(row) for row in range(1200)]
        numbers = [(graph.nodes, len(graph.edges)) for graph in graphs]
        found[task.question] = majority_by(numbers, batch.targets.tolist())
    assert found["rings"] < 0.33
    assert found["triangles"] < 0.75


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"question": "cycles"}, "no question 'cycles'"),
        ({"nodes": 10, "fewest": 11}, "nodes=10 should be at least fewest=11"),
        ({"question": "rings", "fewest": 11}, "most should be at most 3 with fewest=11.*got 4"),
        ({"nodes": 6}, "nodes should be at least 7, got 6"),
    ],
)
def test_sizes_that_cannot_be(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GraphQuestions(**options)
