"""TokenGT: what an attention head can read from the identifiers of nodes."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.mechanisms.structure.token_gt import (
    FORMS,
    GraphTokens,
    TokenGTOptions,
    orthogonal_rows,
)
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

DIM = 6
GRAPHS = [
    Graph(4, [(0, 1), (1, 0), (2, 2), (0, 1)], None, torch.randn(4, 3)),
    Graph(2, [(1, 0)], None, torch.randn(1, 3)),
]


def built(**options: object) -> GraphTokens:
    torch.manual_seed(4)
    made = GraphTokens(DIM, TokenGTOptions(**options)).double().eval()  # type: ignore[arg-type]
    return made


def test_random_identifiers_have_the_mean_zero() -> None:
    """Each entry of 4,000 draws: six deviations of the mean, 1/√r over √4,000."""
    drawn = torch.stack([orthogonal_rows(5, 4, torch.tensor([seed])) for seed in range(4000)])
    assert drawn.mean(0).abs().max() < 6 * 0.5 / 4000**0.5


@pytest.mark.parametrize("identifiers", ["orthogonal", "laplacian"])
def test_tokens_by_hand(identifiers: str) -> None:
    """The concatenation [x, P, P, E] by one matrix, w_in, as printed."""
    layer = built(identifiers=identifiers, width=5, edge_features=3)
    structure = GraphBatch.of(GRAPHS)
    x = torch.randn(2, 4, DIM, dtype=torch.float64)
    tokens, exist = layer(x, structure=structure)
    assert tokens.shape == (2, 1 + 4 + 4, DIM)
    assert exist.tolist() == [[True] * 9, [True] * 3 + [False] * 2 + [True] + [False] * 3]
    p = layer.identifiers(structure)
    w_in = torch.cat([torch.eye(DIM).double(), layer.identify.weight.mT, torch.eye(DIM).double()])
    for row, graph in enumerate(GRAPHS):
        wanted = [layer.graph]
        for v in range(graph.nodes):
            wanted.append(torch.cat([x[row, v], p[row, v], p[row, v], layer.types[0]]) @ w_in)
        ordered = structure.graph(row)  # edges as they stand in the batch
        for (u, v), own in zip(ordered.edges.tolist(), ordered.features.double(), strict=True):
            x_uv = layer.edges(own)
            wanted.append(torch.cat([x_uv, p[row, u], p[row, v], layer.types[1]]) @ w_in)
        torch.testing.assert_close(tokens[row, exist[row]], torch.stack(wanted))


def test_turning_an_edge_changes_its_token() -> None:
    """By the difference of the matrices of source and target; were they one, not at all."""
    layer = built(width=5)
    x = torch.randn(1, 2, DIM, dtype=torch.float64)
    one, other = (GraphBatch.of([Graph(2, [edge])]) for edge in ((0, 1), (1, 0)))
    tokens, turned = (layer(x, structure=structure)[0][0] for structure in (one, other))
    torch.testing.assert_close(tokens[:3], turned[:3])
    of_source, of_target = layer.identify.weight.split(5, dim=1)
    p = layer.identifiers(one)[0]
    wanted = (of_source - of_target) @ (p[0] - p[1])
    assert wanted.abs().max() > 1e-3
    torch.testing.assert_close(tokens[3] - turned[3], wanted)
    with torch.no_grad():
        of_target.copy_(of_source)
    tokens, turned = (layer(x, structure=structure)[0][0] for structure in (one, other))
    torch.testing.assert_close(tokens, turned)


def test_identifiers_are_orthonormal_if_they_are_wide_enough() -> None:
    seed = torch.tensor([7])
    for count, width in ((5, 5), (3, 5), (7, 4)):
        p = orthogonal_rows(count, width, seed)
        found = p @ p.mT
        torch.testing.assert_close(found.diagonal(), torch.ones(count).double())
        apart = (found - torch.eye(count).double()).abs().max()
        assert (apart < 1e-12) == (width >= count)
    assert torch.equal(orthogonal_rows(3, 5, seed), orthogonal_rows(5, 5, seed)[:3])
    layer = built(identifiers="laplacian", width=5)
    p = layer.identifiers(GraphBatch.of(GRAPHS))
    torch.testing.assert_close(p[0] @ p[0].mT, torch.eye(4).double())
    torch.testing.assert_close(p[1, :2] @ p[1, :2].mT, torch.eye(2).double())


@pytest.mark.parametrize("identifiers", ["orthogonal", "laplacian"])
def test_identifiers_are_drawn_in_training_alone(identifiers: str) -> None:
    layer, structure = built(identifiers=identifiers, width=5), GraphBatch.of(GRAPHS)
    assert torch.equal(layer.identifiers(structure), layer.identifiers(structure))
    layer.train()
    drawn = [layer.identifiers(structure) for _ in range(6)]
    assert any(not torch.equal(each, drawn[0]) for each in drawn)
    for p in drawn:
        torch.testing.assert_close(p[0] @ p[0].mT, torch.eye(4).double())


# ---- what heads can do


def patterns(n: int) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """All (i, j, k, l) by which of the four are equal; that of (3, 5, 5, 2) is (0, 1, 1, 2)."""
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for four in itertools.product(range(n), repeat=4):
        seen = list(dict.fromkeys(four))
        found.setdefault(tuple(seen.index(each) for each in four), set()).add(four)
    return found


def test_there_are_fifteen_patterns() -> None:
    n = 5
    found = patterns(n)
    assert len(found) == 15
    for pattern, members in found.items():
        free = max(pattern) + 1
        assert len(members) == math.factorial(n) // math.factorial(n - free)
    assert sum(map(len, found.values())) == n**4


def of_pattern(pattern: tuple[int, ...], p: Tensor, c: float) -> Tensor:
    """The weights of one head between all pairs of nodes: its scores count the equalities that the
    pattern asks for, and take away those that it forbids."""
    n = len(p)
    pairs = torch.tensor(list(itertools.product(range(n), repeat=2)))
    same = p @ p.mT
    scores = torch.zeros(n * n, n * n, dtype=p.dtype)
    for a, b in itertools.product((0, 1), repeat=2):
        wanted = 1 if pattern[a] == pattern[2 + b] else -1
        scores = scores + wanted * c * same[pairs[:, a]][:, pairs[:, b]]
    kinds = (pairs[:, 0] == pairs[:, 1])[None] == (pattern[2] == pattern[3])
    return (scores + c * kinds).softmax(-1)


@pytest.mark.parametrize("width", [4, 3])
def test_one_head_for_each_pattern(width: int) -> None:
    """As c grows, the weights of a pair of the pattern's own kind are equal over its partners; not
    with identifiers that are too narrow to be orthonormal."""
    n = 4
    p = orthogonal_rows(n, width, torch.tensor([1]))
    pairs = list(itertools.product(range(n), repeat=2))
    right = []
    for pattern, members in patterns(n).items():
        weights = of_pattern(pattern, p, 60.0)
        for row, (i, j) in enumerate(pairs):
            partners = [k for k, pair in enumerate(pairs) if (i, j, *pair) in members]
            if partners:
                wanted = torch.zeros(n * n).double()
                wanted[partners] = 1 / len(partners)
                right.append(torch.allclose(weights[row], wanted, atol=1e-6))
    assert all(right) == (width == n)


# ---- the layer


@pytest.mark.parametrize("form", FORMS)
def test_the_layer_is_softmax_over_all_tokens(form: str) -> None:
    torch.manual_seed(2)
    layer = attnlab.build("token_gt", dim=DIM, heads=2, form=form, width=5).double().eval()
    structure = GraphBatch.of(GRAPHS)
    x = torch.randn(2, 4, DIM, dtype=torch.float64)
    out = layer(x, structure=structure)
    tokens, exist = layer.tokens(x, structure=structure)
    own, d = layer.heads, DIM // 2
    for row, node in structure.padding.nonzero().tolist():
        q, k, v = own.query(tokens[row, 1 + node]), own.key(tokens[row]), own.value(tokens[row])
        parts = []
        for head in (slice(0, d), slice(d, None)):
            weights = (k[exist[row], head] @ q[head] / math.sqrt(d)).softmax(0)
            parts.append(weights @ v[exist[row], head])
        torch.testing.assert_close(out[row, node], own.output(torch.cat(parts)))


def test_numbering_anew_with_the_identifiers_moved() -> None:
    """Identifiers are drawn by number; with those of the old numbers the output is permuted."""
    order = torch.tensor([2, 0, 3, 1])
    layer = attnlab.build("token_gt", dim=DIM, heads=2, width=5).eval()
    graph = GRAPHS[0]
    moved = Graph(4, order[graph.edges])
    x = torch.randn(1, 4, DIM)
    out = layer(x, structure=GraphBatch.of([graph]))
    x_moved, own = torch.empty_like(x), layer.tokens.identifiers

    def identifiers(structure: GraphBatch) -> Tensor:
        p = own(structure)
        q = p.clone()
        q[:, order] = p
        return q

    x_moved[:, order] = x
    layer.tokens.identifiers = identifiers
    found = layer(x_moved, structure=GraphBatch.of([moved]))[:, order]
    torch.testing.assert_close(found, out, atol=1e-5, rtol=0)


def test_a_performer_reads_the_tokens() -> None:
    """As any other layer of the catalogue; padding has no influence."""
    torch.manual_seed(0)
    layer, backbone = built(width=5), attnlab.build("performer", dim=DIM, heads=2).double().eval()
    x = torch.randn(1, 4, DIM, dtype=torch.float64)
    short, long = (GraphBatch.of([Graph(4, GRAPHS[0].edges)], length=n) for n in (4, 6))
    out = backbone(*layer(x, structure=short))
    wide = nn.functional.pad(x, (0, 0, 0, 2), value=torch.nan)
    tokens, exist = layer(wide, structure=long)
    torch.testing.assert_close(backbone(tokens, exist)[exist], out[0])


def test_features_of_the_edges() -> None:
    layer = attnlab.build("token_gt", dim=DIM, heads=2, edge_features=2)
    with pytest.raises(ValueError, match=r"have 3 features, but .* edge_features=2"):
        layer(torch.randn(2, 4, DIM), structure=GraphBatch.of(GRAPHS))
