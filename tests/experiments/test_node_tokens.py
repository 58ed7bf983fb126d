"""The experiment `node_tokens`, small: its graphs and answers, its models, and what is stored."""

import pytest
import torch

from attnlab.experiments import node_tokens
from attnlab.experiments.node_tokens import TASKS, Graphs, build, graphs, right
from attnlab.mechanisms.structure.token_gt import GraphTokens, TokenGTOptions
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch


@pytest.mark.parametrize("task", TASKS)
def test_answers_by_counting_edges(task: str) -> None:
    batch = graphs(task, 11, seed=3)
    assert (batch.marked.sum(1) == 1).all()
    assert (batch.marked & ~batch.structure.padding).sum() == 0
    for row in range(11):
        graph = batch.structure.graph(row)
        edges = {tuple(each) for each in graph.edges.tolist()}
        assert len(edges) == len(graph.edges)
        assert {(v, u) for u, v in edges} == edges
        assert all(u != v for u, v in edges)
        special = int(batch.marked[row].int().argmax())
        for node in range(graph.nodes):
            degree = sum(u == node for u, _ in edges)
            wanted = min(degree, 5) if task == "degree" else int((node, special) in edges)
            assert batch.answers[row, node] == wanted
        assert (batch.answers[row, graph.nodes :] == -100).all()


def test_splits_and_seeds_have_graphs_of_their_own() -> None:
    drawn = [
        graphs("degree", 5, seed, split=split)
        for split in ("train", "validation")
        for seed in (0, 1)
    ]
    assert len({tuple(each.structure.sources.tolist()) for each in drawn}) == 4


def test_numbers_of_nodes() -> None:
    counts = graphs("degree", 200, seed=0, nodes=(7, 13)).structure.padding.sum(1)
    assert sorted(set(counts.tolist())) == [*range(7, 14)]


def test_without_identifiers_only_numbers_of_tokens_are_left() -> None:
    batch = graphs("degree", 7, seed=0)
    out = build("degree", "none", 0).eval()(batch.structure, torch.zeros_like(batch.marked))
    for row, real in zip(out, batch.structure.padding, strict=True):
        torch.testing.assert_close(row[real], row[:1].expand(int(real.sum()), -1))
    told = build("degree", "orthogonal", 0).eval()(batch.structure, batch.marked)
    assert told[0, 0].sub(told[0, 1]).abs().max() > 1e-3


def test_training_leaves_missing_identifiers_missing() -> None:
    model = node_tokens.train("degree", "none", 0, steps=2)
    assert not model.tokens.identify.weight.any()


def test_identifiers_begin_three_times_as_large_as_the_layer_makes_them() -> None:
    torch.manual_seed(5)
    plain = GraphTokens(node_tokens.DIM, TokenGTOptions(width=node_tokens.WIDTH)).identify.weight
    large = build("degree", "laplacian", 0).tokens.identify.weight
    assert 2.7 < large.std() / plain.std() < 3.3


def test_scores_leave_padding_out() -> None:
    batch = graphs("neighbours", 9, seed=1)

    class Knows(torch.nn.Module):
        def forward(self, structure, marked):
            return torch.nn.functional.one_hot(batch.answers.clamp(min=0), 2)

    assert right(Knows(), batch) == 100  # type: ignore[arg-type]
    answers = torch.where(batch.answers >= 0, 1 - batch.answers, -100)
    assert right(Knows(), Graphs(*batch[:2], answers)) == 0  # type: ignore[arg-type]


def test_hidden_edges_make_no_difference_to_the_answers() -> None:
    """With edges taken out of a graph, eigenvectors kept, only a model that sees edges differs."""
    batch = graphs("neighbours", 5, seed=2)
    sizes = (batch.answers >= 0).sum(1)
    none = Graphs(GraphBatch.of([Graph(int(n)) for n in sizes], length=10), *batch[1:])
    for arm, equal in (("orthogonal", False), ("orthogonal, edges hidden", True)):
        model = build("neighbours", arm, 0).eval()
        one, other = (model(each.structure, each.marked) for each in (batch, none))
        real = batch.answers >= 0
        assert torch.allclose(one[real], other[real], atol=1e-4) is equal
