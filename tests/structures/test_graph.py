"""One graph: its edges, and the graphs of other libraries."""

import types
import warnings

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.structures.graph import Graph


@st.composite
def graphs(draw: st.DrawFn, most: int = 6, features: int = 0) -> Graph:
    """With loops, several edges between two nodes, and nodes without any."""
    nodes = draw(st.integers(1, most))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=12))
    kinds = [draw(st.integers(0, 2)) for _ in edges]
    values = [[draw(st.sampled_from([-1.0, 0.5, 2.0])) for _ in range(features)] for _ in edges]
    return Graph(nodes, edges, kinds, torch.tensor(values).view(len(edges), features))


def listed(graph: Graph) -> list[tuple]:
    """Every edge with all that belongs to it, in order."""
    edges, kinds = graph.edges.tolist(), graph.kinds.tolist()
    rows = zip(edges, kinds, graph.features.tolist(), strict=True)
    return sorted((*edge, kind, tuple(features)) for edge, kind, features in rows)


@settings(deadline=None, max_examples=40)
@given(graphs(features=2))
def test_networkx_and_back(graph: Graph) -> None:
    other = graph.to_networkx()
    assert isinstance(other, networkx.MultiDiGraph)
    assert list(other) == list(range(graph.nodes))
    for _, _, attributes in other.edges(data=True):
        both = attributes.pop("features")
        attributes |= {"one": both[0], "two": both[1]}
    back = Graph.of_networkx(other, features=("one", "two"), kind="kind")
    assert back.nodes == graph.nodes
    assert listed(back) == listed(graph)


def test_an_undirected_graph_of_networkx() -> None:
    """Edges in both directions, a loop once; nodes in the order in which networkx has them."""
    other = networkx.Graph([("b", "a"), ("a", "a"), ("a", "c")])
    found = Graph.of_networkx(other)
    assert found.nodes == 3
    number = {node: index for index, node in enumerate(other.nodes)}
    b, a, c = (number[name] for name in "bac")
    wanted = [(b, a), (a, b), (a, a), (a, c), (c, a)]
    assert sorted(map(tuple, found.edges.tolist())) == sorted(wanted)


def test_data_of_pytorch_geometric() -> None:
    """Anything with the same attributes: edge_index has the sources in its first row."""
    index = torch.tensor([[0, 3], [1, 2]])
    data = types.SimpleNamespace(edge_index=index, num_nodes=5, edge_attr=torch.tensor([0.5, 2]))
    found = Graph.of_data(data)
    assert found.nodes == 5
    assert listed(found) == [(0, 1, 0, (0.5,)), (3, 2, 0, (2.0,))]
    data.edge_type, data.edge_attr = torch.tensor([4, 7]), None
    assert listed(Graph.of_data(data)) == [(0, 1, 4, ()), (3, 2, 7, ())]
    data.batch = torch.tensor([0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match="to_data_list"):
        Graph.of_data(data)
    with pytest.raises(TypeError, match=r"edge_index \(2, m\).*got a str"):
        Graph.of_data("data")


def test_the_class_of_pytorch_geometric_itself() -> None:
    """Its batches are told by their class: one graph at a time is taken."""
    with warnings.catch_warnings():  # it compiles by torch.jit, which is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        library = pytest.importorskip("torch_geometric.data", reason="it is not installed")
    index, weights = torch.tensor([[0, 3], [1, 2]]), torch.tensor([[0.5, 1.0], [2.0, 3.0]])
    data = library.Data(edge_index=index, edge_attr=weights, num_nodes=5)
    found = Graph.of_data(data)
    assert found.nodes == 5
    assert listed(found) == [(0, 1, 0, (0.5, 1.0)), (3, 2, 0, (2.0, 3.0))]
    assert Graph.of_data(library.Data(x=torch.randn(7, 3), edge_index=index)).nodes == 7
    empty = library.Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=3)
    assert listed(Graph.of_data(empty)) == []
    both = library.Batch.from_data_list([data, data])
    with pytest.raises(ValueError, match="to_data_list"):
        Graph.of_data(both)
    assert [graph.nodes for graph in map(Graph.of_data, both.to_data_list())] == [5, 5]
    with pytest.raises(TypeError, match=r"edge_index \(2, m\).*got a HeteroData"):
        Graph.of_data(library.HeteroData())


def test_reverses_and_loops() -> None:
    graph = Graph(4, [(0, 1), (2, 2), (0, 1)], [1, 0, 2], [[1.0], [2.0], [3.0]])
    assert listed(graph.both_ways()) == [
        (0, 1, 1, (1.0,)),
        (0, 1, 2, (3.0,)),
        (1, 0, 1, (1.0,)),
        (1, 0, 2, (3.0,)),
        (2, 2, 0, (2.0,)),
    ]
    loops = [edge for edge in listed(graph.with_loops(kind=5)) if edge[0] == edge[1]]
    assert loops == [(0, 0, 5, (0.0,)), (1, 1, 5, (0.0,)), (2, 2, 0, (2.0,)), (3, 3, 5, (0.0,))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "the number of nodes of a graph should be at least 1"),
        ((2.5,), "the number of nodes of a graph should be a whole number"),
        ((3, [(0, 1), (1, 3)]), r"edge 1 leads from 1 to 3, but the nodes are 0 … 2"),
        ((3, [(0, -1)]), r"edge 0 leads from 0 to -1"),
        ((3, [(0, 1, 2)]), r"edges should be whole numbers of shape \(m, 2\)"),
        ((3, [(0, 1), (1,)]), r"edges should be whole numbers \(m, 2\)"),
        ((3, "edges"), r"edges should be whole numbers \(m, 2\)"),
        ((3, torch.zeros(1, 2)), r"edges should be whole numbers.*got torch.float32"),
        ((3, [(0, 1)], [0, 1]), "one entry of kinds for each edge, but there are 2 for 1 edges"),
        ((3, [(0, 1)], [-2]), r"the kind of an edge is 0, 1, 2, …, got -2"),
        ((3, [(0, 1)], None, [1.0]), r"features should be real numbers of shape \(m, f\)"),
        ((3, [(0, 1)], None, [[torch.nan]]), "the features of edge 0 are not finite"),
        ((3, [(0, 1)], None, [[1.0], [2.0]]), "one entry of features for each edge"),
    ],
)
def test_what_is_no_graph(arguments: tuple, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Graph(*arguments)


def test_what_networkx_has_not() -> None:
    with pytest.raises(TypeError, match="a graph of networkx is expected, got a list"):
        Graph.of_networkx([(0, 1)])
    other = networkx.Graph()
    other.add_edge("a", "b", weight=2)
    with pytest.raises(ValueError, match="'a' to 'b' has no attribute 'colour'; it has 'weight'"):
        Graph.of_networkx(other, features=("colour",))
    with pytest.raises(ValueError, match="at least 1"):
        Graph.of_networkx(networkx.Graph())
