"""The topic structure: its rows exist, and its graphs are what they are called."""

from attnlab.measure.benchmarks import structure as topic


def test_the_topic_measures_what_it_names() -> None:
    found = list(topic.rows(quick=True, threads=1))
    figures = [row.figure for row in found]
    assert "naive / edges, 200 nodes, forward" in figures
    assert "16 eigenvectors of the Laplacian, 600 nodes" in figures
    by_name = {row.figure: row for row in found}
    assert by_name["edges: exponent of the largest tensor in the edges"].met
    assert by_name["naive: exponent of the largest tensor in the nodes"].measured > 1.9
    for row in found:
        assert row.measured is not None or "not installed" in row.note


def test_random_graphs() -> None:
    one, other = topic.random_graph(30), topic.random_graph(30, both_ways=True)
    assert 200 < len(one.edges) <= 300
    assert len(one.edges.unique(dim=0)) == len(one.edges)
    pairs = sorted(map(tuple, other.edges.tolist()))
    assert pairs == sorted((v, u) for u, v in pairs)
