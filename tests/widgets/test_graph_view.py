"""GraphView: its weights are those given, its field is reached, its layout parts what is apart."""

import itertools
import json
import math
import re
from base64 import b64decode
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.graph_view import GraphView
from attnlab_widgets.graph_view.path import marks
from attnlab_widgets.graph_view.picture import importance
from PIL import Image

import attnlab
from attnlab.lens.graph_structure import (
    communities,
    numbered,
)
from attnlab.mechanisms.structure.graph_transformer import GraphTransformer
from attnlab.mechanisms.structure.token_gt import TokenGT
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from tests.widgets.stored import stored, unlike, write

N = 7
EDGES = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2), (3, 2), (4, 3), (3, 2), (0, 4), (5, 5), (1, 4)]
"""Parallel edges from 3 to 2, loops at 2 and 5, and node 6 without an edge."""
NAMES = ["os", "a.module.with.a.very.long.name.indeed", "<b>", "3", "re", "io", "ast"]


def of_edges(layers: int = 2, heads: int = 3) -> torch.Tensor:
    """Weights (layers, heads, 11) that sum to 1 over the edges that lead to a node."""
    scores = torch.randn(layers, heads, len(EDGES), generator=torch.Generator().manual_seed(1))
    powers = scores.double().exp()
    into = torch.tensor(EDGES)[:, 1]
    return powers / torch.zeros(layers, heads, N).double().index_add(2, into, powers)[:, :, into]


def dense(weights: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(*weights.shape[:2], N, N, dtype=torch.float64)
    for at, (source, target) in enumerate(EDGES):
        found[:, :, target, source] += weights[:, :, at]
    return found


def view(**options: Any) -> GraphView:
    return GraphView(Graph(N, EDGES), of_edges(), labels=NAMES, **options)


def modules(n: int = 100) -> GraphView:
    """As many nodes with names of 30 letters and more, in five groups, with attention."""
    random = np.random.default_rng(5)
    group = random.integers(5, size=n)
    edges = [
        (i, j)
        for i, j in itertools.permutations(range(n), 2)
        if random.random() < (0.13 if group[i] == group[j] else 0.008)
    ]
    graph = Graph(n, edges)
    scores = torch.randn(2, 2, len(edges), generator=torch.Generator().manual_seed(2)).exp()
    into = graph.edges[:, 1]
    weights = scores / torch.zeros(2, 2, n).index_add(2, into, scores)[:, :, into]
    names = [f"package_{group[i]}.module_{i:03d}{'_abcdefgh' * (i % 3)}" for i in range(n)]
    return GraphView(graph, weights, labels=names, groups=[f"package_{one}" for one in group])


# ---- the front end


def widgets() -> list[GraphView]:
    alone = GraphView(Graph(1, [(0, 0)]), torch.ones(1, 1, 1), node=0)
    return [
        view(),
        view(node=2, layer=1, head=2, depth=1, order="degree"),
        view(node=2, depth=3, groups=[*"aabbbcc"], order="group"),
        view(node=6, depth=1),
        view(node=5),
        GraphView(Graph(N, EDGES), labels=NAMES, node=2),
        GraphView(Graph(N, EDGES), labels=NAMES, node=6),
        GraphView(Graph(N, EDGES), node=4, order="number"),
        GraphView(Graph(N, EDGES)),
        GraphView(nx.star_graph(5), node=0, depth=1),
        GraphView(Graph(3, [(0, 1)]), np.full((3, 3), 0.3), node=1, depth=1),
        GraphView(Graph(3, [(0, 1)]), torch.zeros(1, 2, 1), node=1, head=0),
        alone,
        modules(40),
        view(path=[2, 2, 1]),
        view(path=[3, 2, 1], step=0, node=2),
        view(path=[3, 2, 1], step=1, head=1, node=4, depth=1),
        GraphView(Graph(N, EDGES), labels=NAMES, path=[0, 1, 0, 1, 2, 2], step=3),
        GraphView(Graph(N, EDGES), labels=NAMES, path=[2, 2]),
        GraphView(Graph(N, EDGES), uneven(), path=[0, 1, 2], layer=0, head=2),
    ]


def uneven() -> list[torch.Tensor]:
    """Three heads, and then one."""
    maps = dense(of_edges())
    return [maps[0], maps[1, :1]]


def case(one: GraphView) -> dict[str, Any]:
    names = ("node", "layer", "head", "depth", "order", "step")
    return {
        "graph": one._graph,
        "pairs": np.frombuffer(one._pairs, "<u2").tolist(),
        "weights": np.frombuffer(one._weights, "<u2").tolist(),
        "state": {name: getattr(one, name) for name in names},
        "values": one._values().tolist(),
        "hops": one.hops(),
        "said": one.description(),
        "wanted": importance(one, one.map().numpy()),
        "along": one.path_weights(),
        "marks": [[hop.at, text, now] for hop, text, now in marks(one._hops, one.step)],
    }


def cases() -> list[Any]:
    return [case(one) for one in widgets()]


def test_the_front_end_is_tested_on_these_cases() -> None:
    known = [{**one, "weights": ""} for one in stored("graph.json")]
    found = json.loads(json.dumps([{**one, "weights": ""} for one in cases()]))
    assert not unlike(found, known, "graph.json", near=2e-5)  # steps of 1 / 65,535


# ---- weights


def test_weights_of_edges_are_those_of_pairs_and_parallel_edges_are_summed() -> None:
    given = of_edges()
    whole = dense(given)
    for weights in (given, whole, whole.numpy(), [*whole]):
        one = GraphView(Graph(N, EDGES), weights)
        for layer, head in itertools.product(range(2), (0, 1, 2, None)):
            one.layer, one.head = layer, head
            wanted = whole[layer].mean(0) if head is None else whole[layer, head]
            torch.testing.assert_close(one.map(), wanted, rtol=0, atol=2 / 65535)
    single = GraphView(Graph(N, EDGES), whole[0, 1])
    torch.testing.assert_close(single.map(), whole[0, 1], rtol=0, atol=2 / 65535)


def test_without_weights_every_edge_counts_one() -> None:
    one = GraphView(Graph(N, EDGES))
    assert torch.equal(one.map(), (dense(of_edges())[0, 0] > 0).double())


def test_a_model_is_recorded_on_its_graph() -> None:
    torch.manual_seed(0)
    options = {"kind": "classifier", "classes": 5, "max_len": 32, "layers": 2, "heads": 3}
    model = TinyTransformer(13, dim=12, attention="graph_transformer", **options)
    graph, tokens = Graph(N, EDGES), torch.randint(13, (N,))
    with attnlab.watch(model.eval()) as seen, torch.no_grad():
        model(tokens[None], structure=GraphBatch.of([graph]))
    for one in (GraphView(graph, model, inputs=tokens), GraphView(graph, seen)):
        assert len(one._attended.layers) == 2
        one.layer, one.head = 1, 2
        torch.testing.assert_close(
            one.map(), seen[1].weights[0, 2].double(), rtol=0, atol=2 / 65535
        )
        leads = torch.tensor([1.0, 1, 1, 1, 1, 1, 0]).double()
        torch.testing.assert_close(one.map().sum(1), leads, rtol=0, atol=1e-4)


def test_a_row_of_a_batch_has_no_padding() -> None:
    torch.manual_seed(0)
    layer = GraphTransformer(10, 2)
    graphs = [Graph(11, [(i, i + 1) for i in range(10)]), Graph(N, EDGES)]
    with attnlab.watch(layer) as seen, torch.no_grad():
        layer(torch.randn(2, 11, 10), structure=GraphBatch.of(graphs))
    one = GraphView(graphs[1], seen, batch=1)
    torch.testing.assert_close(
        one.map(), seen[0].weights[1, :, :N, :N].mean(0).double(), rtol=0, atol=2 / 65535
    )
    with pytest.raises(ValueError, match=re.escape("are 11 × 11, but the graph has 7 nodes")):
        GraphView(graphs[1], seen, batch=0)


def test_of_tokens_of_edges_the_nodes_remain() -> None:
    torch.manual_seed(0)
    layer = TokenGT(10, 2)
    graph = Graph(N, EDGES)
    with attnlab.watch(layer.eval()) as seen, torch.no_grad():
        layer(torch.randn(1, N, 10), structure=GraphBatch.of([graph]))
    whole = seen[0].weights[0]
    assert whole.shape == (2, N, 1 + N + len(EDGES))
    one = GraphView(graph, seen, node=3)
    torch.testing.assert_close(
        one.map(), whole[:, :, 1 : 1 + N].mean(0).double(), rtol=0, atol=2 / 65535
    )
    total = float(one.map()[3].sum())
    assert one.description().endswith(f"These weights sum to {total:.2f}.")
    square = torch.rand(1, 1, 1 + N + len(EDGES), 1 + N + len(EDGES)) / 50
    one = GraphView(graph, square)
    torch.testing.assert_close(
        one.map(), square[0, 0, 1 : 1 + N, 1 : 1 + N].double(), rtol=0, atol=2 / 65535
    )


# ---- structure


def test_the_field_holds_what_powers_of_the_adjacency_reach() -> None:
    one = modules(40)
    links = torch.eye(40, dtype=torch.float64) + (one.map() > 0)
    seen = [torch.linalg.matrix_power(links, step) > 0 for step in range(one._graph["deepest"] + 2)]
    for node in (0, 7, 23):
        one.node = node
        for other, hop in enumerate(one.hops()):
            reached = [bool(step[node, other]) for step in seen]
            assert hop == (reached.index(True) if any(reached) else -1)
    assert bool((seen[-1] == seen[-2]).all())
    assert bool((seen[-2] != seen[-3]).any())


def test_a_layer_leads_beyond_the_edges_where_weights_do() -> None:
    path = Graph(5, [(i, i + 1) for i in range(4)])
    one = GraphView(path, node=4, depth=2)
    assert one.hops() == [4, 3, 2, 1, 0]
    assert one.description().endswith("After 2 layers its receptive field holds 3 of 5 nodes.")
    full = GraphView(path, np.full((5, 5), 0.2), node=4, depth=1)
    assert full.hops() == [1, 1, 1, 1, 0]
    assert full.description().endswith("After 1 layer its receptive field holds 5 of 5 nodes.")


def test_two_cliques_are_two_communities_and_squares_of_the_map() -> None:
    graph = nx.barbell_graph(5, 0)
    shuffled = [3, 8, 0, 5, 9, 1, 6, 2, 7, 4]
    edges = [(shuffled[u], shuffled[v]) for u, v in graph.edges]
    one = GraphView(Graph(10, edges).both_ways())
    clique = {shuffled[node] for node in range(5)}
    parts = [{i for i in range(10) if one.communities[i] == at} for at in (0, 1)]
    assert clique in parts
    assert set(one.shown_order[:5]) in parts
    one.order = "degree"
    assert set(one.shown_order[:2]) == {shuffled[4], shuffled[5]}
    assert communities(3, np.zeros((0, 2), int)) == [0, 1, 2]
    assert numbered([*"baabac"]) == [1, 0, 0, 1, 0, 2]


# ---- what is given


def test_graphs_of_many_kinds() -> None:
    letters = nx.Graph([("os", "re"), ("re", "io")])
    one = GraphView(letters)
    assert one.labels == ["os", "re", "io"]
    assert one.map().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert GraphView(letters, labels=[*"xyz"]).labels == [*"xyz"]
    directed = [GraphView(given) for given in (
        nx.DiGraph([(0, 1), (1, 2)]), [(0, 1), (1, 2)], np.array([[0, 1], [1, 2]]),
        Graph(3, [(0, 1), (1, 2)]),
        SimpleNamespace(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3),
    )]  # fmt: skip
    for one in directed:
        assert one.map().tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
        assert one.labels == ["0", "1", "2"]
    assert len(GraphView([(0, 1)], labels=[*"abcd"]).labels) == 4


def test_long_labels_are_cut_at_thirty_letters_and_keep_their_spaces() -> None:
    assert GraphView([(0, 1)], labels=["Jean Valjean", " "]).labels == ["Jean Valjean", "␣"]
    assert view().labels[1] == "a.module.with.a.very.long.nam…"
    assert len(view().labels[1]) == 30


def test_what_is_said() -> None:
    one = view(node=2, layer=1, head=2)
    row = one.map()[2]
    order = sorted([1, 2, 3], key=lambda j: -row[j])
    names = {1: "“a.module.with.a.very.long.nam…”", 2: "itself", 3: "node 3"}
    first, second, third = (f"{names[j]} ({row[j]:.2f})" for j in order)
    assert one.description() == (
        f"In layer 1 (head 2) “<b>” attends to {first}, {second} and {third}."
    )
    one.head = None
    assert one.description().startswith("In layer 1 (mean of 3 heads) “<b>” attends to ")
    one.node = 6
    assert one.description() == (
        "In layer 1 (mean of 3 heads) “ast” attends to nothing: no edge leads to it."
    )
    star = GraphView(nx.star_graph(6), torch.tensor([[[1.0] * 6 + [0.5] + [1 / 6] * 5]]), node=0)
    assert star.description() == (
        "In layer 0 node 0 attends to 6 nodes, most to node 1 (0.50), node 2 (0.17) and "
        "node 3 (0.17)."
    )
    assert GraphView(nx.star_graph(5), node=0).description() == (
        "Edges lead to node 0 from node 1, node 2, node 3 and 2 others."
    )
    assert GraphView([(0, 1)], node=0).description() == "No edge leads to node 0."
    assert GraphView([(0, 1)], node=1).description() == "An edge leads to node 1 from node 0."
    assert GraphView([(0, 1)]).description() == (
        "2 nodes and 1 edge. Choose a node to see which edges lead to it."
    )
    assert repr(view(node=5)) == (
        "GraphView: In layer 0 (mean of 3 heads) “io” attends to itself (1.00)."
    )


def test_states_are_set_and_refused_in_sentences() -> None:
    one = view(groups=[*"aabbbcc"])
    one.layer, one.head, one.node, one.depth, one.order = 1, 2, 3, 2, "group"
    one.positions = torch.rand(N, 2)
    for name, value, words in (
        ("node", N, "`node` should be 0 to 6 here, got 7"),
        ("layer", 2, "`layer` should be 0 to 1 here, got 2"),
        ("head", 3, "`head` should be 0 to 2 here, got 3"),
        ("depth", 99, "`depth` should be 0 to 4 here, got 99"),
        ("order", "size", "`order` should be one of number, community, degree, group, got 'size'"),
        ("positions", np.zeros((N, 3)), "`positions` should be 7 places [x, y] from 0 to 1"),
        ("positions", np.full((N, 2), 1.5), "from 0 to 1, got (7, 2) from 1.5 to 1.5"),
    ):
        with pytest.raises(traitlets.TraitError, match=re.escape(words)):
            setattr(one, name, value)
    with pytest.raises(traitlets.TraitError, match="because there are no weights, got 0"):
        GraphView([(0, 1)], head=0)
    with pytest.raises(traitlets.TraitError, match="got 'group'; give `groups`, too"):
        view(order="group")


def test_a_head_that_the_new_layer_lacks_gives_way() -> None:
    one = GraphView(Graph(N, EDGES), uneven(), head=2)
    one.layer = 1
    assert one.head is None
    one.node = 2
    assert one.description().startswith("In layer 1 node 2 attends to ")


# ---- the path


def test_each_hop_has_the_weight_of_its_own_layer() -> None:
    whole = dense(of_edges())
    one = view(path=[3, 2, 1])
    assert (one.path, one.step, one.layer) == ([3, 2, 1], 2, 1)
    wanted = [float(whole[0, :, 2, 3].mean()), float(whole[1, :, 1, 2].mean())]
    assert one.path_weights() == pytest.approx(wanted, abs=2 / 65535)
    long = "“a.module.with.a.very.long.nam…”"
    assert one.description() == (
        f"Hop 2 of 2: {long} attends to “<b>” with {wanted[1]:.2f} in layer 1 (mean of 3 heads)."
    )
    one.step, one.head = 1, 2
    assert one.layer == 0
    first = float(whole[0, 2, 2, 3])
    assert one.path_weights()[0] == pytest.approx(first, abs=2 / 65535)
    assert one.description() == (
        f"Hop 1 of 2: “<b>” attends to node 3 with {first:.2f} in layer 0 (head 2)."
    )
    one.step = 0
    assert one.description().startswith(
        f"A path of 2 hops leads from node 3 to {long}. 7 nodes and 11 edges. The largest weight"
    )
    assert view(path=[3, 2, 1], layer=0).layer == 0


def test_a_hop_whose_layer_lacks_the_head_has_the_mean_of_its_heads() -> None:
    one = GraphView(Graph(N, EDGES), uneven(), path=[0, 1, 2], layer=0, head=2)
    whole = dense(of_edges())
    wanted = [float(whole[0, 2, 1, 0]), float(whole[1, 0, 2, 1])]
    assert one.path_weights() == pytest.approx(wanted, abs=2 / 65535)
    assert one.description().endswith(f"attends to node 1 with {wanted[1]:.2f} in layer 1.")


def test_paths_without_weights_and_onto_the_node_itself() -> None:
    one = GraphView(Graph(N, EDGES), labels=NAMES, path=[1, 0, 1, 2, 2])
    assert one.description() == "Hop 4 of 4: an edge leads from “<b>” to itself."
    assert one.path_weights() == [1, 1, 1, 1]
    one.step = 1
    assert one.description().endswith(".nam…” to “os”.")
    assert (
        view(path=[2, 2, 1], step=1)
        .description()
        .startswith("Hop 1 of 2: “<b>” attends to itself with 0.")
    )


def test_without_a_path_nothing_is_marked() -> None:
    one = view(node=2)
    assert (one.path, one.step, one.path_weights(), one.layer) == ([], 0, [], 0)
    assert one.description().startswith("In layer 0 (mean of 3 heads) “<b>” attends")
    assert "the path" not in one.still().svg("")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": [3, 2, 5]}, "hop 2 of `path` is no edge: no edge leads from “<b>” to “io”"),
        ({"path": [2, 3]}, "leads from “<b>” to node 3; the edge between them leads the other way"),
        ({"path": [1, 1]}, "hop 1 of `path` is no edge"),
        ({"path": [3]}, "`path` should have two nodes or more, which is one hop, got [3]"),
        ({"path": [3, 2, 7]}, "`path[2]` should be 0 to 6 here, got 7"),
        ({"path": [3, 2, 1, 0]}, "3 hops and the weights have 2 layers, but information travels"),
        ({"step": 1}, "`step` counts the hops of `path`; give `path`, too"),
        ({"path": [3, 2], "step": 2}, "`step` should be 0 to 1 here, got 2"),
    ],
)
def test_paths_that_are_none_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, traitlets.TraitError), match=re.escape(words)):
        view(**options)


def test_a_path_is_a_list_of_numbers() -> None:
    for path in ("os", 3, ["os", "re"], [0.5, 1]):
        with pytest.raises(TypeError, match="path"):
            view(path=path)
    with pytest.raises(
        traitlets.TraitError, match=re.escape("`step` should be 0 to 0 here, got 1")
    ):
        view().step = 1


# ---- the picture


def test_the_picture_numbers_the_hops_that_are_shown() -> None:
    one = GraphView(Graph(N, EDGES), path=[0, 1, 0, 1, 2], order="number")

    def numbers() -> list[tuple[str, bool]]:
        texts = [part for kind, part in one.still().parts if kind == "text"]
        return [(part["content"], part["bold"]) for part in texts if part.get("anchor") == "middle"]

    assert numbers() == [("1,3", False), ("2", False), ("4", True)]
    one.step = 3
    assert numbers() == [("2", False), ("1,3", True)]
    widths = [part["width"] for kind, part in one.still().parts if kind == "line"]
    assert widths[-1] == max(widths) > widths[-2] > max(widths[:-2])
    assert "with numbers: the hops of the path" in one.still().svg("")
    one.step = 0
    assert numbers() == []


def test_four_lines_of_words_stand_above_the_picture() -> None:
    one = modules(40)
    node = next(i for i in range(40) if (one.map()[i] > 0).sum() > 3)
    path = [int(one.map()[node].argmax()), node]
    long = GraphView(one.graph, one.map(), labels=one.labels, path=path, node=node, depth=2)
    lines = [part["at"][1] for kind, part in long.still().parts if part.get("size") == 13]
    assert len(lines) == 4
    assert max(lines) <= 56
    assert lines[1] - lines[0] >= 13


@pytest.mark.parametrize("node", [None, 0, 33])
def test_the_picture_is_small_and_its_names_lie_apart(node: int | None) -> None:
    karate = nx.karate_club_graph()
    for one in (GraphView(karate, node=node), modules(), modules(180)):
        one.node = node
        drawing = one.still()
        pixels = b64decode(one._repr_mimebundle_()[0]["image/png"])
        assert len(pixels) <= 60_000
        wide, _ = Image.open(BytesIO(pixels)).size
        assert wide == 2 * drawing.wide or len(one.labels) > 34, "no pixels are left out"
        texts = [
            part for kind, part in drawing.parts if kind == "text" and part["content"] in one.labels
        ]
        assert texts
        boxes = [(x, y, x + 6.2 * len(part["content"]), y + 12)
                 for part in texts for x, y in [part["at"]]]  # fmt: skip
        for (a, b, c, d), (e, f, g, h) in itertools.combinations(boxes, 2):
            assert not (a < g and e < c and b < h and f < d)


def test_the_name_at_the_end_of_a_path_lies_beside_its_arrow() -> None:
    """Pages on a ring, two links: the place below the last page's name is that of the arrow."""
    names = ["slicings", "types", "customization", "class", "special", "operators", "comparisons",
             "booleans"]  # fmt: skip
    edges = [(7, 5), (5, 7), (5, 6), (6, 5), (5, 0), (6, 2), (1, 3), (2, 4), (4, 2)]
    one = GraphView(Graph(8, edges), labels=names, path=[7, 5, 6], step=2)
    turns = [2 * math.pi * place / 8 for place in range(8)]
    one.positions = [[0.45 + 0.4 * math.sin(t), 0.5 - 0.44 * math.cos(t)] for t in turns]
    parts = one.still().parts
    arrows = [part["points"] for kind, part in parts if kind == "line" and part["width"] >= 3]
    x, y = next(part["at"] for kind, part in parts if part.get("content") == "comparisons")
    for points in arrows:
        for (a, b), (c, d) in itertools.pairwise(points):
            for share in (0, 0.25, 0.5, 0.75, 1):
                across, down = a + share * (c - a), b + share * (d - b)
                assert not (x < across < x + 6.6 * len("comparisons") and abs(down - y) < 6)


def test_the_picture_shows_the_graph_and_the_map() -> None:
    one = view(node=2, order="number")
    parts = one.still().parts
    levels = next(part["levels"] for kind, part in parts if kind == "map")
    empty = levels.max()
    assert ((levels != empty) == (one.map().numpy() > 0)).all()
    arrows = [part for kind, part in parts if kind == "patch"]
    assert len(arrows) == len({edge for edge in EDGES if edge[0] != edge[1]})
    assert sum(kind == "disc" for kind, _ in parts) == 2 * N
    assert "<b>" not in one.still().svg("")
    one.depth = 1
    assert "hollow: not reached" in one.still().svg("")


if __name__ == "__main__":
    write("graph.json", cases())
