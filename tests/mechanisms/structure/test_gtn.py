"""Graph Transformer Networks: sums over meta-paths, one path after the other."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import attnlab
from attnlab.core.probe import record
from attnlab.mechanisms.structure.gtn import FORMS, edges, meta_paths, naive
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from tests.structures.test_graph import graphs

LISTS = st.lists(graphs(), min_size=1, max_size=3)
HEADS, WIDTH = 2, 3


def adjacency(graph: Graph, kind: int, n: int) -> Tensor:
    if kind == 3:
        return torch.eye(n).double()
    found = torch.zeros(n, n).double()
    for (source, target), own in zip(graph.edges.tolist(), graph.kinds.tolist(), strict=True):
        if own == kind:
            found[target, source] += 1
    return found


def by_paths(v: Tensor, choices: Tensor, given_graphs: list[Graph]) -> Tensor:
    """The weighted sum over all meta-paths of products of adjacencies, then the averages."""
    (b, h, n, _), (_, s, t) = v.shape, choices.shape
    out = []
    for row, graph in enumerate(given_graphs):
        for head in range(h):
            shares, total = choices[head].softmax(-1), torch.zeros(n, n).double()
            for kinds in itertools.product(range(t), repeat=s):
                product, weight = torch.eye(n).double(), 1.0
                for step, kind in enumerate(kinds):
                    product, weight = (
                        product @ adjacency(graph, kind, n),
                        weight * shares[step, kind],
                    )
                total = total + weight * product
            means = []
            for i in range(n):
                reached = total[i] / total[i].sum() if total[i].sum() > 0 else total[i]
                with_own = reached + torch.eye(n).double()[i]
                means.append(with_own / with_own.sum() @ v[row, head])
            out.append(torch.stack(means))
    return torch.stack(out).view(b, h, n, -1)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=8)
@given(LISTS)
def test_forms_are_the_sum_over_meta_paths(
    form: str, steps: int, given_graphs: list[Graph]
) -> None:
    structure = GraphBatch.of(given_graphs)
    b, n = structure.padding.shape
    v = torch.randn(b, HEADS, n, WIDTH, dtype=torch.float64).requires_grad_()
    choices = torch.randn(HEADS, steps, 4, dtype=torch.float64).requires_grad_()
    wanted = by_paths(v, choices, given_graphs)
    found = FORMS[form](v, choices, structure=structure)
    torch.testing.assert_close(found, wanted)
    direction = torch.randn_like(found)
    pairs = (torch.autograd.grad((x * direction).sum(), (v, choices)) for x in (found, wanted))
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_a_hard_choice_is_one_kind(form: str) -> None:
    """Of (k, I) the paths are the edges of kind k, and the layer a graph convolution on them."""
    graph = Graph(4, [(0, 1), (2, 1), (1, 3), (3, 0)], [1, 1, 0, 1])
    v = torch.randn(1, 1, 4, WIDTH, dtype=torch.float64)
    choices = torch.full((1, 2, 3), -1e4, dtype=torch.float64)
    choices[0, 0, 1] = choices[0, 1, 2] = 0
    out = FORMS[form](v, choices, structure=GraphBatch.of([graph]))[0, 0]
    x = v[0, 0]
    wanted = torch.stack([(x[3] + x[0]) / 2, ((x[0] + x[2]) / 2 + x[1]) / 2, x[2], x[3]])
    torch.testing.assert_close(out, wanted)


def test_a_soft_choice_fills_an_empty_row() -> None:
    """The trap: node 3 has no edge of kind 1, and weights of e^-60 still make a whole row."""
    graph = Graph(4, [(0, 1), (1, 3)], [1, 0])
    choices = torch.tensor([[[-60.0, 0.0, -60.0]]]).double()
    v = torch.eye(4).double()[None, None]
    with record() as notes:
        naive(v, choices, structure=GraphBatch.of([graph]))
    torch.testing.assert_close(
        notes.last("weights")[0, 0, 3], torch.tensor([0.0, 0.25, 0.0, 0.75]).double()
    )


def test_meta_paths_are_read_in_the_order_of_walking() -> None:
    """A walk along kind 0 and then kind 1: its adjacency stands on the right."""
    choices = torch.full((2, 3), -1e4).double()
    choices[0, 1] = choices[1, 0] = 0
    assert meta_paths(choices)[0] == ((0, 1), 1.0)
    graph = Graph(3, [(0, 1), (1, 2)], [0, 1])
    v = torch.eye(3).double()[None, None]
    out = edges(v, choices[None], structure=GraphBatch.of([graph]))[0, 0]
    torch.testing.assert_close(out[2], torch.tensor([0.5, 0, 0.5]).double())
    soft = meta_paths(torch.zeros(2, 3).double())
    assert soft[0][0] in {(0,), (1,)}
    assert dict(soft)[(0,)] == pytest.approx(2 / 9)
    assert dict(soft)[()] == pytest.approx(1 / 9)
    assert sum(weight for _, weight in soft) == pytest.approx(1)
    assert len(soft) == 1 + 2 + 4
    with pytest.raises(ValueError, match=r"10 choices among 5 kinds are 9765625 paths"):
        meta_paths(torch.zeros(10, 5))


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=10)
@given(graphs(), st.integers(0, 1000))
def test_permuting_the_nodes_permutes_the_output(form: str, graph: Graph, seed: int) -> None:
    torch.manual_seed(seed)
    order = torch.randperm(graph.nodes)
    layer = attnlab.build("gtn", dim=12, heads=3, form=form, kinds=3)
    x = torch.randn(1, graph.nodes, 12)
    moved = torch.empty_like(x)
    moved[:, order] = x
    out = layer(x, structure=GraphBatch.of([graph]))
    other = GraphBatch.of([Graph(graph.nodes, order[graph.edges], graph.kinds)])
    torch.testing.assert_close(layer(moved, structure=other)[:, order], out, atol=1e-5, rtol=0)


@pytest.mark.parametrize("apart", [40.0, 60.0])
@pytest.mark.parametrize("form", FORMS)
def test_choices_far_apart_are_not_lost(form: str, apart: float) -> None:
    """Only paths of unlikely kinds exist: their products are below what float32 can hold."""
    graph = Graph(4, [(0, 1), (1, 2), (2, 3)], [1, 1, 1])
    batch = GraphBatch.of([graph])
    choices = torch.tensor([apart, 0.0, -1.0, -2.0]).expand(1, 3, 4).clone().requires_grad_()
    v = torch.randn(1, 1, 4, WIDTH)
    found = FORMS[form](v, choices, structure=batch)
    expected = by_paths(v.double(), choices.detach().double(), [graph]).float()
    torch.testing.assert_close(found.detach(), expected)
    (grad,) = torch.autograd.grad(found.sum(), choices)
    assert grad.isfinite().all()


def test_a_kind_without_a_choice() -> None:
    layer = attnlab.build("gtn", dim=6, heads=2)
    structure = GraphBatch.of([Graph(2, [(0, 1)], [2])])
    with pytest.raises(ValueError, match=r"of kind 2, but .* build the layer with kinds=3"):
        layer(torch.randn(1, 2, 6), structure=structure)
