"""Extra hop attention: a hub attends to the hubs that link to it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import attnlab
from attnlab.mechanisms.dense.full import naive as full
from attnlab.mechanisms.structure.extra_hop import FORMS, ExtraHopOptions, at_hubs
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from tests.structures.test_graph import graphs

HEADS, WIDTH, OUT = 2, 3, 5


def drawn(structure: GraphBatch) -> list[Tensor]:
    b, n = structure.padding.shape
    widths = (WIDTH, WIDTH, OUT)
    return [torch.randn(b, HEADS, n, w, dtype=torch.float64).requires_grad_() for w in widths]


def by_loops(q: Tensor, k: Tensor, v: Tensor, linked: list[Graph], score: str) -> Tensor:
    rows = []
    for row, graph in enumerate(linked):
        for head in range(q.shape[1]):
            for i in range(q.shape[2]):
                total, denominator = v[row, head, 0] * 0, 0.0
                for source, target in graph.edges.tolist():
                    if target != i:
                        continue
                    own, key = q[row, head, i], k[row, head, source]
                    if score == "dot":
                        power = (own @ key / math.sqrt(len(own))).exp()
                    else:
                        both = (own + key).sum()
                        power = (both if both > 0 else 0.2 * both).exp()
                    total, denominator = total + power * v[row, head, source], denominator + power
                rows.append(total if isinstance(denominator, float) else total / denominator)
    return torch.stack(rows).view(*q.shape[:3], -1)


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=12)
@given(st.lists(graphs(), min_size=1, max_size=3))
def test_forms_are_the_equations(form: str, score: str, linked: list[Graph]) -> None:
    structure = GraphBatch.of(linked)
    made = drawn(structure)
    wanted = by_loops(*made, linked, score)
    found = FORMS[form](*made, structure=structure, options=ExtraHopOptions(score=score))  # type: ignore[arg-type]
    torch.testing.assert_close(found, wanted)
    direction = torch.randn_like(wanted)
    pairs = (
        torch.autograd.grad((x * direction).sum(), made, materialize_grads=True)
        for x in (found, wanted)
    )
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_on_the_complete_graph_it_is_full_attention(form: str) -> None:
    n = 7
    links = [(j, i) for j in range(n) for i in range(n)]
    structure = GraphBatch.of([Graph(n, links)])
    q, k, v = drawn(structure)
    torch.testing.assert_close(FORMS[form](q, k, v, structure=structure), full(q, k, v))


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_what_was_found_is_joined_to_what_was(score: str) -> None:
    """By the two halves of W; a hub without links has the first alone."""
    layer = attnlab.build("extra_hop", dim=6, heads=2, score=score).double()
    x = torch.randn(1, 3, 6, dtype=torch.float64)
    out = layer(x, structure=GraphBatch.of([Graph(3, [(0, 1)])]))
    own, hop = layer.joined.weight[:, :6], layer.joined.weight[:, 6:]
    found = layer.heads.output(layer.heads.value(x[:, 0]))  # of one neighbour, whatever its score
    alone = x @ own.mT + layer.joined.bias
    torch.testing.assert_close(out[:, [0, 2]], alone[:, [0, 2]])
    torch.testing.assert_close(out[:, 1], alone[:, 1] + found @ hop.mT)


def test_layers_follow_as_many_links() -> None:
    """Along 0 → 1 → 2 → 3, after L layers hub i depends on hubs i - L … i."""
    layer = attnlab.build("extra_hop", dim=6, heads=2).double()
    structure = GraphBatch.of([Graph(4, [(0, 1), (1, 2), (2, 3)])])
    for layers in (1, 2, 3):
        x = torch.randn(1, 4, 6, dtype=torch.float64, requires_grad=True)
        out = x
        for _ in range(layers):
            out = layer(out, structure=structure)
        (gradient,) = torch.autograd.grad(out[0, 3].sum(), x)
        reached = (gradient[0] != 0).any(-1)
        assert reached.tolist() == [i >= 3 - layers for i in range(4)]


def test_only_hubs_change() -> None:
    layer = attnlab.build("extra_hop", dim=6, heads=2).double()
    structure = GraphBatch.of([Graph(3, [(0, 1), (2, 1)])])
    x = torch.randn(1, 3, 5, 6, dtype=torch.float64)
    out = at_hubs(layer, x, structure=structure)
    assert torch.equal(out[:, :, 1:], x[:, :, 1:])
    torch.testing.assert_close(out[:, :, 0], layer(x[:, :, 0], structure=structure))


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=8)
@given(graphs(), st.integers(0, 1000))
def test_permuting_the_texts_permutes_the_output(
    form: str, score: str, graph: Graph, seed: int
) -> None:
    torch.manual_seed(seed)
    order = torch.randperm(graph.nodes)
    layer = attnlab.build("extra_hop", dim=12, heads=3, form=form, score=score)
    x = torch.randn(1, graph.nodes, 12)
    moved = torch.empty_like(x)
    moved[:, order] = x
    out = layer(x, structure=GraphBatch.of([graph]))
    other = GraphBatch.of([Graph(graph.nodes, order[graph.edges])])
    torch.testing.assert_close(layer(moved, structure=other)[:, order], out, atol=1e-5, rtol=0)
