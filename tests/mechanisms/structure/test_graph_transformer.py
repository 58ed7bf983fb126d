"""The Graph Transformer: softmax over the edges that lead to a node."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attnlab
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.dense.full import naive as full
from attnlab.mechanisms.structure.graph_transformer import FORMS
from attnlab.mechanisms.structure.graph_transformer.layer import GraphTransformerLayer
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from tests.structures.test_graph import graphs

LISTS = st.lists(graphs(features=2), min_size=1, max_size=3)
HEADS, WIDTH, OUT = 2, 3, 5


def drawn(structure: GraphBatch) -> list[Tensor]:
    """Queries, keys, values and gates."""
    (b, n), m = structure.padding.shape, len(structure.sources)
    shapes = [(b, HEADS, n, WIDTH), (b, HEADS, n, WIDTH), (b, HEADS, n, OUT), (m, HEADS, WIDTH)]
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]


def by_loops(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, structure: GraphBatch) -> Tensor:
    """The equations, one node and one head after the other."""
    b, h, n, d = q.shape
    edges = list(zip(structure.sources.tolist(), structure.targets.tolist(), strict=True))
    out = []
    for row in range(b):
        for head in range(h):
            for i in range(n):
                own = [(e, j - row * n) for e, (j, t) in enumerate(edges) if t == row * n + i]
                total, denominator = v[row, head, 0] * 0, 0.0
                for e, j in own:
                    score = sum(
                        q[row, head, i, c] * k[row, head, j, c] * gates[e, head, c]
                        for c in range(d)
                    )
                    power = (score / math.sqrt(d)).exp()
                    total, denominator = total + power * v[row, head, j], denominator + power
                out.append(total / denominator if own else total)
    return torch.stack(out).view(b, h, n, -1)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=15)
@given(LISTS)
def test_forms_are_the_equations(form: str, given_graphs: list[Graph]) -> None:
    """Values and gradients; loops, several edges between two nodes, isolated nodes."""
    structure = GraphBatch.of(given_graphs)
    q, k, v, gates = made = drawn(structure)
    for own in (gates, torch.ones_like(gates)):
        wanted = by_loops(q, k, v, own, structure)
        found = FORMS[form](q, k, v, structure=structure, gates=own)
        torch.testing.assert_close(found, wanted)
        direction = torch.randn_like(wanted)
        pairs = (
            torch.autograd.grad((x * direction).sum(), made, materialize_grads=True)
            for x in (found, wanted)
        )
        for mine, theirs in zip(*pairs, strict=True):
            torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(FORMS[form](q, k, v, structure=structure), found)


@pytest.mark.parametrize("form", FORMS)
def test_on_the_complete_graph_with_loops_it_is_full_attention(form: str) -> None:
    n = 7
    structure = GraphBatch.of([Graph(n, [(j, i) for j in range(n) for i in range(n)])] * 2)
    q, k, v, _ = drawn(structure)
    torch.testing.assert_close(FORMS[form](q, k, v, structure=structure), full(q, k, v))


@pytest.mark.parametrize("form", FORMS)
def test_on_a_directed_path_it_moves_values_one_step_on(form: str) -> None:
    """Nothing leads to the first node; each other has one neighbour, whose weight is 1."""
    structure = GraphBatch.of([Graph(5, [(i, i + 1) for i in range(4)])])
    q, k, v, gates = drawn(structure)
    out = FORMS[form](q, k, v, structure=structure, gates=gates)
    torch.testing.assert_close(out[:, :, 1:], v[:, :, :-1])
    assert (out[:, :, 0] == 0).all()


@pytest.mark.parametrize("features", [0, 2])
@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=10)
@given(graphs(features=2), st.integers(0, 1000))
def test_permuting_the_nodes_permutes_the_output(
    form: str, features: int, graph: Graph, seed: int
) -> None:
    """In float32, to 1e-5."""
    torch.manual_seed(seed)
    order = torch.randperm(graph.nodes)
    layer = attnlab.build("graph_transformer", dim=12, heads=3, form=form, edge_features=features)
    x = torch.randn(1, graph.nodes, 12)
    moved = Graph(graph.nodes, order[graph.edges], graph.kinds, graph.features)
    out = layer(x, structure=GraphBatch.of([graph]))
    x_moved = torch.empty_like(x)
    x_moved[:, order] = x
    found = layer(x_moved, structure=GraphBatch.of([moved]))[:, order]
    torch.testing.assert_close(found, out, atol=1e-5, rtol=0)


def test_the_map_is_that_of_the_edges() -> None:
    """Rows sum to one where there are edges; ``edges`` shows the same map as ``naive``."""
    structure = GraphBatch.of([Graph(4, [(0, 1), (0, 1), (3, 1), (1, 0)])])
    q, k, v, gates = drawn(structure)
    seen = []
    for form in FORMS.values():
        with record() as notes:
            form(q, k, v, structure=structure, gates=gates)
        seen.append(notes.last("weights"))
    torch.testing.assert_close(seen[1], seen[0])
    allowed = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 1], [0] * 4, [0] * 4]).bool()
    assert torch.equal(seen[0][0, 0] > 0, allowed)
    torch.testing.assert_close(seen[0][0].sum(-1), allowed.any(1).double().expand(HEADS, -1))
    layer = attnlab.build("graph_transformer", dim=6, heads=HEADS).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    found = mixing_matrix(layer, x, structure=structure)
    assert found.exact
    with record() as notes:
        layer(x, structure=structure)
    torch.testing.assert_close(found.matrix, notes.last("weights"))


def test_edges_hold_as_many_numbers_as_there_are_edges() -> None:
    """The largest tensor of ``edges`` grows with m and not with n²."""
    largest = []
    for n in (200, 400):
        ends = torch.randint(n, (3 * n, 2))
        structure = GraphBatch.of([Graph(n, ends)])
        q, k, v, gates = drawn(structure)
        counted = count(lambda *x, s=structure: FORMS["edges"](*x, structure=s), q, k, v)
        largest.append(counted.largest_tensor.elements / len(gates))
    assert largest[0] == largest[1] <= HEADS * OUT


# ---- the layer of the paper


def layer_and_inputs(norm: str) -> tuple[nn.Module, GraphBatch, Tensor, Tensor]:
    torch.manual_seed(3)
    structure = GraphBatch.of(
        [Graph(5, [(0, 1), (1, 0), (2, 2), (3, 1)]), Graph(3, [(0, 2), (0, 2)])]
    )
    layer = GraphTransformerLayer(6, HEADS, edges=True, norm=norm).double()  # type: ignore[arg-type]
    return layer, structure, torch.randn(2, 5, 6).double(), torch.randn(6, 6).double()


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_the_layer_by_hand(norm: str) -> None:
    layer, structure, x, e = layer_and_inputs(norm)
    out, edges = layer(x, e, structure=structure)
    own = layer.heads

    def split(y: Tensor) -> Tensor:
        return y.unflatten(-1, (HEADS, WIDTH))

    def normed(y: Tensor) -> Tensor:  # as both are built: weight 1, bias 0
        axis = 0 if norm == "batch" else 1
        mean, var = y.mean(axis, keepdim=True), y.var(axis, unbiased=False, keepdim=True)
        return (y - mean) / (var + 1e-5).sqrt()

    def after(y: Tensor, mixed: Tensor, part: nn.Module) -> Tensor:
        first = normed(y + mixed)
        return normed(first + part.feed_forward(first))

    q, k, v = (split(f(x)).flatten(0, 1) for f in (own.query, own.key, own.value))
    vectors = q[structure.targets] * k[structure.sources] * split(layer.gates(e)) / math.sqrt(WIDTH)
    powers = vectors.sum(-1).exp()
    mixed = torch.zeros(10, HEADS, WIDTH).double()
    for token in range(10):
        at = structure.targets == token
        if at.any():
            weights = powers[at] / powers[at].sum(0)
            mixed[token] = (weights[..., None] * v[structure.sources[at]]).sum(0)
    real = structure.padding.flatten()
    nodes = after(x.flatten(0, 1)[real], own.output(mixed.flatten(1))[real], layer.nodes)
    torch.testing.assert_close(out[structure.padding], nodes)
    assert (out[~structure.padding] == 0).all()
    wanted = after(e, layer.edge_output(vectors.flatten(1)), layer.edges)
    torch.testing.assert_close(edges, wanted)


def test_the_layer_is_told_what_it_was_built_for() -> None:
    layer, structure, x, e = layer_and_inputs("batch")
    with pytest.raises(ValueError, match="built with edges=True: give `e`"):
        layer(x, structure=structure)
    plain = GraphTransformerLayer(6, HEADS).double()
    with pytest.raises(ValueError, match="no stream of edges; build it with edges=True"):
        plain(x, e, structure=structure)
    assert plain(x, structure=structure)[1] is None
    with pytest.raises(ValueError, match="`gates` are of 4 edges, but the structure has 6"):
        layer(x, e[:4], structure=structure)
    with pytest.raises(ValueError, match="at least two nodes or edges in a batch in training"):
        plain(x[:1, :1], structure=GraphBatch.of([Graph(1)]))


def test_padding_has_no_part_in_the_batch_norm() -> None:
    """Rows with more padding give the same nodes, and the same running means; NaN does not spread.

    With padding among the rows, zeros after the residual, mean and variance would change.
    """
    layer, structure, x, e = layer_and_inputs("batch")
    out, _ = layer(x, e, structure=structure)
    means = [norm.running_mean.clone() for norm in layer.nodes.norms]
    again, *_ = layer_and_inputs("batch")
    longer = GraphBatch.of([structure.graph(row) for row in range(2)], length=11)
    noisy = x.masked_fill(~structure.padding[..., None], torch.nan)
    noisy = nn.functional.pad(noisy, (0, 0, 0, 6), value=torch.nan)
    found, _ = again(noisy, e, structure=longer)
    torch.testing.assert_close(found[longer.padding], out[structure.padding])
    for norm, mean in zip(again.nodes.norms, means, strict=True):
        torch.testing.assert_close(norm.running_mean, mean)


# ---- the module


def test_features_of_the_edges() -> None:
    structure = GraphBatch.of([Graph(2, [(0, 1)], None, [[1.0, 2.0, 3.0]])])
    x = torch.randn(1, 2, 6)
    layer = attnlab.build("graph_transformer", dim=6, heads=2, edge_features=2)
    with pytest.raises(ValueError, match=r"have 3 features, but .* edge_features=2"):
        layer(x, structure=structure)
    with pytest.raises(ValueError, match="give structure=GraphBatch"):
        layer(x)


def test_a_model_of_graphs() -> None:
    """A classifier of graphs: the mean over the nodes, which no numbering changes."""
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(
        features=3, classes=2, kind="classifier", dim=12, heads=2, layers=2,
        attention="graph_transformer", positions="none",
    )  # fmt: skip
    graph = Graph(5, [(0, 1), (1, 2), (2, 0), (3, 1)]).both_ways()
    order = torch.tensor([3, 0, 4, 1, 2])
    x = torch.randn(1, 5, 3)
    moved = torch.empty_like(x)
    moved[:, order] = x
    out = model(x, structure=GraphBatch.of([graph], length=5))
    again = model(moved, structure=GraphBatch.of([Graph(5, order[graph.edges])]))
    torch.testing.assert_close(again, out, atol=1e-5, rtol=0)
    longer = torch.nn.functional.pad(x, (0, 0, 0, 2), value=torch.nan)
    padded = model(longer, structure=GraphBatch.of([graph], length=7))
    torch.testing.assert_close(padded, out, atol=1e-5, rtol=0)
