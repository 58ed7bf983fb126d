"""Labels of nodes: what is shown and asked, the graphs of networkx, and a vote of neighbours."""

from collections import Counter
from collections.abc import Callable

import networkx
import numpy as np
import pytest
import torch

from attnlab.structures.graph import Graph
from attnlab.tasks import UNSCORED
from attnlab.tasks.node_labels import FUNCTIONS, GRAPHS, NodeLabels

IMPORTS = NodeLabels()


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_shown_and_what_is_asked(name: str) -> None:
    task = NodeLabels(name)
    labels = torch.tensor(task.labelled.labels)
    kept = torch.from_numpy(task.for_validation)
    assert (labels[kept] >= 0).all()
    known = int(((labels >= 0) & ~kept).sum())
    for split in ("train", "validation"):
        batch = task.batch(split, 7, seed=3)
        shown, asked = batch.inputs > 0, batch.targets != UNSCORED
        assert not (shown & asked).any()
        assert not (shown & kept).any()
        assert (shown.sum(1) == known // 2).all()
        assert torch.equal(batch.inputs[shown], labels.expand(7, -1)[shown] + 1)
        assert torch.equal(batch.targets[asked], labels.expand(7, -1)[asked])
        if split == "train":
            assert torch.equal(shown | asked, ((labels >= 0) & ~kept).expand(7, -1))
        else:
            assert torch.equal(asked, kept.expand(7, -1))
    for label in range(task.classes):
        own = labels == label
        assert (own & kept).sum() == own.sum() // 4


def test_a_package_is_the_first_part_of_the_name() -> None:
    graph, nodes, labels, classes = IMPORTS.labelled
    assert (graph.nodes, len(graph.edges), len(classes)) == (401, 3740, 18)
    for node, label in zip(nodes, labels, strict=True):
        first = node.split(".")[0]
        assert (classes[label] == first) if label >= 0 else (first not in classes)
    edges = set(map(tuple, graph.edges[graph.kinds == 0].tolist()))
    assert (nodes.index("json"), nodes.index("json.decoder")) in edges
    assert edges == {(v, u) for u, v in graph.edges[graph.kinds == 1].tolist()}
    assert torch.equal(graph.features.argmax(1), graph.kinds)


def test_functions_are_named_for_those_who_may_call_them() -> None:
    graph, nodes, labels, classes = NodeLabels("calls").labelled
    assert (graph.nodes, len(graph.edges), graph.kinds.sum()) == (451, 2 * 562 - 9, 562 - 9)
    of = {node: classes[label] for node, label in zip(nodes, labels, strict=True)}
    assert of["shutil.copytree"] == of["argparse._ActionsContainer.add_argument"] == "public"
    assert of["shutil._copytree"] == of["difflib.SequenceMatcher.__chain_b"] == "private"
    assert of["argparse._StoreAction.__init__"] == "special"
    forward, back = (graph.edges[graph.kinds == kind].tolist() for kind in (0, 1))
    assert [nodes.index("shutil.copytree"), nodes.index("shutil._copytree")] in forward
    assert sorted(back) == sorted([v, u] for u, v in forward if u != v)
    assert torch.equal(graph.features.argmax(1), graph.kinds)


def test_the_karate_club_is_that_of_networkx() -> None:
    found, other = NodeLabels("karate_club").labelled, networkx.karate_club_graph()
    assert [found.classes[label] for label in found.labels] == [
        club for _, club in other.nodes(data="club")
    ]
    assert len(found.graph.edges) == 2 * other.number_of_edges() == 156
    at = found.graph.edges.tolist().index([0, 1])
    assert found.graph.features[at].item() == other[0][1]["weight"]


def test_communities_of_the_miserables() -> None:
    """The modularity of the labels, by its definition, is that of a good division."""
    found, other = NodeLabels("miserables").labelled, networkx.les_miserables_graph()
    weights = networkx.to_numpy_array(other)
    degrees, total = weights.sum(1), weights.sum()
    labels = np.array(found.labels)
    together = labels[:, None] == labels
    modularity = ((weights - np.outer(degrees, degrees) / total) * together).sum() / total
    assert modularity > 0.5
    assert found.nodes == tuple(other)
    assert found.classes[found.labels[found.nodes.index("Valjean")]] == "that of Valjean"
    assert len(set(found.labels)) == len(found.classes)


def found_by(rule: Callable[[Graph, list[int], int, int], int], task: NodeLabels) -> float:
    """The share of labels that a rule finds, told the graph, the tokens, the token of the most
    frequent label and the node."""
    batch = task.batch("validation", 5, seed=0)
    right = []
    for row in range(5):
        graph, shown = batch.structure.graph(row), batch.inputs[row].tolist()
        usual = Counter(token for token in shown if token).most_common(1)[0][0]
        for node, wanted in enumerate(batch.targets[row].tolist()):
            if wanted != UNSCORED:
                right.append(rule(graph, shown, usual, node) == wanted + 1)
    return sum(right) / len(right)


def most_frequent(graph: Graph, shown: list[int], usual: int, node: int) -> int:
    return usual


def vote(graph: Graph, shown: list[int], usual: int, node: int) -> int:
    """The most frequent label that the neighbours show; the most frequent of all where they show
    none."""
    neighbours = graph.edges[graph.edges[:, 1] == node, 0].tolist()
    votes = Counter(shown[one] for one in neighbours if one != node and shown[one])
    return votes.most_common(1)[0][0] if votes else usual


def private_if_called(graph: Graph, shown: list[int], usual: int, node: int) -> int:
    callers = graph.edges[(graph.edges[:, 1] == node) & (graph.kinds == 0), 0]
    return 1 + FUNCTIONS.index("private" if (callers != node).any() else "public")


@pytest.mark.parametrize(
    ("name", "low", "high"), [("imports", 0.6, 0.9), ("karate_club", 0.7, 0.95)]
)
def test_what_a_vote_of_the_neighbours_finds(name: str, low: float, high: float) -> None:
    """Far above the most frequent label alone, and for the imports far from all."""
    task = NodeLabels(name)
    voted = found_by(vote, task)
    assert low < voted <= high
    assert found_by(most_frequent, task) < voted - 0.2


def test_the_direction_of_calls_tells_more_than_a_vote() -> None:
    task = NodeLabels("calls")
    most, voted, directed = (
        found_by(rule, task) for rule in (most_frequent, vote, private_if_called)
    )
    print("X", most, voted, directed)
    assert 0.4 < most < voted < 0.55 < directed < 0.7


def test_wrong_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="no graph 'karate'; did you mean 'karate_club'"):
        NodeLabels("karate")
