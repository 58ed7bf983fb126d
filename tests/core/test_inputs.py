"""What a caller hands in: copied where it is kept, refused where it cannot be used."""

import copy
import math
import pickle

import networkx
import numpy as np
import pytest
import torch

from attnlab.core.integers import check_integer
from attnlab.core.search import Codes, Index, nearest
from attnlab.measure.costs import counted, decodes, state_bytes
from attnlab.measure.subject import subjects
from attnlab.structures.graph import Graph
from attnlab.structures.table import Table, TableQuestion
from attnlab.structures.tree import Tree

TABLE = Table(["a", "b"], [["1", "2"]])
KEYS = torch.randn(700, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
FLOAT8 = torch.ones(2, 2).to(torch.float8_e4m3fn)


def with_text():
    graph = networkx.DiGraph()
    graph.add_edge(2**70, "b", word="text", huge=2**2000)
    return graph


def spoilt(value):
    keys = KEYS.clone()
    keys[3, 2] = value
    return keys


REFUSED = {
    "text features": lambda: Graph.of_networkx(with_text(), features=["word"]),
    "huge features": lambda: Graph.of_networkx(with_text(), features=["huge"]),
    "a text for a list": lambda: Graph.of_networkx(with_text(), features="word"),
    "text kinds": lambda: Graph.of_networkx(with_text(), kind="word"),
    "2**70 nodes": lambda: Graph(2**70),
    "sparse edges": lambda: Graph(3, torch.eye(2).long().to_sparse()),
    "edges on meta": lambda: Graph(3, torch.zeros(2, 2, device="meta").long()),
    "kinds of 2**70": lambda: Graph(3, [(0, 1)], [2**70]),
    "no table": lambda: TableQuestion(None, "q", 0, 0),
    "a question of no text": lambda: TableQuestion(TABLE, 5, 0, 0),
    "a row in a text": lambda: TableQuestion(TABLE, "q", "0", 0),
    "a row of 1.5": lambda: TABLE.row_text(1.5),
    "a row that is not there": lambda: TABLE.row_text(7),
    "a column of None": lambda: TABLE.column_text(None),
    "no children": lambda: Tree("a", None),
    "NaN keys": lambda: nearest(KEYS[None, None, :5], spoilt(math.nan)[None, None], 3),
    "NaN keys of an index": lambda: Index(spoilt(math.nan)),
    "float8 keys": lambda: Index(FLOAT8),
    "no layer": lambda: counted(None, 5),
    "a list for a layer": lambda: state_bytes([], 5),
    "no layer that decodes": lambda: decodes(None),
    "no list of names": lambda: subjects(5),
    "2**70": lambda: check_integer("n", 2**70),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_a_sentence(case):
    with pytest.raises((TypeError, ValueError)) as found:
        REFUSED[case]()
    assert len(str(found.value).split()) > 4
    assert "attnlab" in str(found.traceback[-1].path)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_faiss_is_given_only_what_it_can_bear(value):
    """It answers numbers whose squares overflow by ending the process."""
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match="keys"):
        Index(spoilt(value), Codes())
    padded = torch.full((1, 1, 2, 8), value, dtype=torch.float64)
    queries = torch.cat([KEYS[None, None, :2], padded], dim=2)
    found = nearest(queries, KEYS[None, None], 3, search="approximate")
    alone = nearest(queries[:, :, :2], KEYS[None, None], 3, search="approximate")
    assert torch.equal(found[:, :, :2], alone)
    assert (found[:, :, 2:] == -1).all() or not math.isnan(value)
    assert Index(KEYS, Codes(candidates=2**40)).search(KEYS[:2], 3).positions.shape == (2, 3)


def test_a_graph_keeps_its_own_edges():
    edges, kinds, features = torch.tensor([[0, 1]]), np.array([2]), torch.ones(1, 1)
    graph = Graph(3, edges, kinds, features)
    edges[0, 0], kinds[0], features[0] = 2, 9, 7
    assert graph.edges.tolist() == [[0, 1]]
    assert (graph.kinds.tolist(), graph.features.tolist()) == ([2], [[1.0]])
    children = [Tree("b")]
    tree = Tree("a", children)
    children.append(Tree("c"))
    assert len(tree.children) == 1


def test_features_come_back_from_networkx():
    graph = Graph(3, [(0, 1), (1, 2)], [0, 1], [[1.0, 2.0], [3.0, 4.0]])
    back = Graph.of_networkx(graph.to_networkx(), features=["features"], kind="kind")
    for name in ("edges", "kinds", "features"):
        assert torch.equal(getattr(back, name), getattr(graph, name))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))])
def test_deep_trees_are_copied(copied):
    tree = Tree("a")
    for at in range(5000):
        tree = Tree(str(at), (tree, Tree("x")))
    assert copied(tree) == tree
