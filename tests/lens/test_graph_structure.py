"""Where a graph is drawn, and what belongs together in it."""

import networkx as nx
import numpy as np

from attnlab.lens.graph_structure import (
    _start,
    adjacency,
    communities,
    layout,
)

"""Parallel edges from 3 to 2, loops at 2 and 5, and node 6 without an edge."""


def test_communities_are_about_as_good_as_those_of_networkx() -> None:
    for graph in (nx.karate_club_graph(), nx.les_miserables_graph()):
        named = [*graph]
        edges = np.array([(named.index(u), named.index(v)) for u, v in graph.edges])
        own = communities(len(named), edges)
        parts = [{named[i] for i, of in enumerate(own) if of == at} for at in range(max(own) + 1)]
        theirs = nx.community.greedy_modularity_communities(graph)
        found, known = (
            nx.community.modularity(graph, each, weight=None) for each in (parts, theirs)
        )
        assert found > known - 0.02
        assert [*map(len, parts)] == sorted(map(len, parts), reverse=True)


def test_the_layout_is_the_same_each_time_and_edges_are_short() -> None:
    for graph in (nx.karate_club_graph(), nx.les_miserables_graph(), nx.path_graph(23)):
        number = {node: at for at, node in enumerate(graph)}
        edges = np.array([(number[u], number[v]) for u, v in graph.edges])
        n = len(number)
        at = layout(n, edges)
        assert np.array_equal(at, layout(n, edges))
        assert at.min(0).tolist() == [0, 0]
        assert at.max(0).tolist() == [1, 1]
        apart = np.hypot(*(at[:, None] - at).transpose(2, 0, 1))
        linked = apart[edges[:, 0], edges[:, 1]].mean()
        assert linked < 0.75 * apart[np.triu_indices(n, 1)].mean()
        assert apart[np.triu_indices(n, 1)].min() > 0.1 / n


def test_odd_graphs_have_places() -> None:
    none = np.zeros((0, 2), int)
    assert layout(1, none).tolist() == [[0.5, 0.5]]
    for n, edges in (
        (2, none),
        (2, np.array([[0, 1]])),
        (9, none),
        (3, np.array([[0, 1], [1, 1]])),
    ):
        at = layout(n, edges)
        assert np.isfinite(at).all()
        apart = np.hypot(*(at[:, None] - at).transpose(2, 0, 1))
        assert apart[np.triu_indices(n, 1)].min() > 0.05
    legs = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (0, 7), (7, 8), (8, 9)]
    edges = np.array([*legs, (3, 10), (3, 11)])
    links = adjacency(12, edges) | adjacency(12, edges[:, ::-1])
    for places in (_start(links), layout(12, edges)):
        assert np.hypot(*(places[10] - places[11])) > 0.01, "of the same neighbours, and apart"
    apart = layout(6, np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5]]))
    first, second = apart[:3].mean(0), apart[3:].mean(0)
    assert np.hypot(*(first - second)) > 0.5, "parts that are not connected lie apart"
