"""Tree attention: the paper's equations written out over sets, and what follows from them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import attnlab
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.structure.tree import FORMS, TreeAttention
from attnlab.mechanisms.structure.tree.dense import interpolate, upward_average
from attnlab.mechanisms.structure.tree.parallel import along_paths
from attnlab.mechanisms.structure.tree.shares import by_shares
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch
from tests.structures.test_tree_batch import TREES, left_branching, right_branching, unary_chain

H, E = 2, 3
SHAPES = {
    "one leaf": Tree("x"),
    "unary chain": unary_chain(5),
    "wide": Tree("n", tuple(Tree("w") for _ in range(17))),
    "left": left_branching(9),
    "right": right_branching(9),
    "unary inside": Tree.of(["r", ["q", ["p", "a", "b"]], "c"]),
}


def drawn(structure: TreeBatch, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    b, n = structure.padding.shape
    shapes = [(b, H, n, E), (b, H, n), (4, E), (6, E)]
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def by_sets(structure: TreeBatch, row: int, made: list[Tensor]) -> Tensor:
    """Equations 6, 7 and 9 for one tree: for every node and leaf the set of the branch."""
    v, w, vertical, horizontal = (x.detach() for x in made)
    v, w, out = v[row], w[row], v[row].clone()
    below = {
        i: set(structure.below[row, i].nonzero().flatten().tolist())
        for i in structure.padding[row].nonzero().flatten().tolist()
    }
    leaves = [i for i in below if structure.is_leaf[row, i]]
    for i in (i for i in below if not structure.is_leaf[row, i]):
        own, total = [j for j in leaves if j in below[i]], torch.zeros(H, E, dtype=v.dtype)
        for j in own:
            branch = [t for t in below[i] if j in below[t] and t not in leaves]
            mean = v[:, j].clone()
            for t in branch:
                length = len([s for s in below[t] if j in below[s] and s not in leaves])
                place = len([x for x in leaves if x in below[t] and x <= j])
                mean += v[:, t] + vertical[min(length, 4) - 1] + horizontal[min(place, 6) - 1]
            total += w[:, j, None] * mean / (len(branch) + 1)
        out[:, i] = total / len(own)
    return out


def compare(structure: TreeBatch) -> None:
    made = drawn(structure)
    real = structure.padding[:, None, :, None]
    direction = torch.randn_like(made[0]) * real
    expected = FORMS["naive"](*made, structure=structure)
    for row in range(len(structure)):
        torch.testing.assert_close(
            (expected * real)[row], by_sets(structure, row, made) * real[row]
        )
    gradients = torch.autograd.grad((expected * direction).sum(), made, materialize_grads=True)
    both_ways = [along_paths, by_shares] if structure.paths.numel() else []
    for form in [*list(FORMS.values())[1:], *both_ways]:
        out = form(*made, structure=structure)
        torch.testing.assert_close(out * real, expected * real)
        found = torch.autograd.grad((out * direction).sum(), made, materialize_grads=True)
        for mine, theirs in zip(found, gradients, strict=True):
            torch.testing.assert_close(mine, theirs)


@settings(deadline=None, max_examples=30)
@given(st.lists(TREES, min_size=1, max_size=3))
def test_forms_equal_the_equations_and_each_other(trees: list[Tree]) -> None:
    compare(TreeBatch.of(trees))


@pytest.mark.parametrize("name", SHAPES)
def test_trees_of_every_shape(name: str) -> None:
    compare(TreeBatch.of([SHAPES[name], Tree.of(["r", "a", "b"])]))


@pytest.mark.parametrize("make", [right_branching, left_branching, unary_chain])
def test_depth_60(make) -> None:  # type: ignore[no-untyped-def]
    structure = TreeBatch.of([make(60)])
    made = drawn(structure)
    expected = FORMS["naive"](*made, structure=structure)
    for form in list(FORMS)[1:]:
        torch.testing.assert_close(FORMS[form](*made, structure=structure), expected)


def test_worked_example() -> None:
    """The tree [0, [1, 2]] with leaves 1, 2, 3, nodes 10 and 20 and weights 1, 1/2, 2."""
    structure = TreeBatch.of([Tree.of(["r", "a", ["q", "b", "c"]])])
    v = torch.tensor([1.0, 2, 3, 10, 20], dtype=torch.float64).view(1, 1, 5, 1)
    w = torch.tensor([1.0, 0.5, 2, 99, 99], dtype=torch.float64).view(1, 1, 5)
    none = torch.zeros(1, 1, dtype=torch.float64)
    averages = upward_average(interpolate(v, none, none, structure=structure), structure=structure)
    rows = [[0, 11, 11.5], [5.5, 32 / 3, 11]]  # the deepest node first
    torch.testing.assert_close(averages.squeeze(), torch.tensor(rows, dtype=torch.float64))
    for form in FORMS.values():
        out = form(v, w, none, none, structure=structure).flatten()
        torch.testing.assert_close(
            out, torch.tensor([1, 2, 3, (5.5 + 16 / 3 + 22) / 3, 14.25], dtype=torch.float64)
        )


@settings(deadline=None, max_examples=30)
@given(TREES)
def test_constants_are_preserved(tree: Tree) -> None:
    structure = TreeBatch.of([tree])
    ones = torch.ones(1, 1, structure.padding.shape[1], 2, dtype=torch.float64)
    none = torch.zeros(1, 2, dtype=torch.float64)
    for form in FORMS.values():
        out = form(3 * ones, ones[..., 0], none, none, structure=structure)
        torch.testing.assert_close(out, 3 * ones)


@settings(deadline=None, max_examples=30)
@given(TREES)
def test_the_value_of_a_node_depends_on_its_subtree_alone(tree: Tree) -> None:
    structure = TreeBatch.of([tree])
    made = drawn(structure)
    for form in FORMS.values():
        (grad,) = torch.autograd.grad(
            form(*made, structure=structure)[0, :, structure.roots[0]].sum(), made[0]
        )
        assert (grad != 0).any()
        for i in range(structure.padding.shape[1]):
            out = form(*made, structure=structure)[0, :, i].sum()
            (grad,) = torch.autograd.grad(out, made[0])
            assert (grad[0, :, ~structure.below[0, i]] == 0).all()


@settings(deadline=None, max_examples=30)
@given(TREES, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_does_not_matter(tree: Tree, random) -> None:  # type: ignore[no-untyped-def]
    structure = TreeBatch.of([tree])
    n, leaves = structure.padding.shape[1], int(structure.is_leaf.sum())
    later = list(range(leaves, n))
    random.shuffle(later)
    order = torch.tensor([*range(leaves), *later])  # what stands at each place now
    place = order.argsort()
    parents = structure.parents[:, order]
    parents = place[parents.clamp(min=0)].where(parents >= 0, -1)
    shuffled = TreeBatch.from_parents(parents)
    v, w, a, c = drawn(structure)
    for form in FORMS.values():
        out = form(v, w, a, c, structure=structure)[:, :, order]
        torch.testing.assert_close(
            form(v[:, :, order], w[:, :, order], a, c, structure=shuffled), out
        )


# ---- the layer


def layer(dim: int = 12, heads: int = 3) -> TreeAttention:
    torch.manual_seed(0)
    return TreeAttention(dim, heads).double()


@pytest.mark.parametrize("name", SHAPES)
def test_leaves_are_attended_to_as_in_full_attention(name: str) -> None:
    """Nodes never reach leaves within a layer, and without nodes it is ordinary attention."""
    own, structure = layer(), TreeBatch.of([SHAPES[name]])
    full = attnlab.build("full", dim=12, heads=3).double()
    full.heads.load_state_dict(own.heads.state_dict())
    x = torch.randn(1, structure.padding.shape[1], 12, dtype=torch.float64)
    leaves = structure.is_leaf[0]
    torch.testing.assert_close(own(x, structure=structure)[:, leaves], full(x[:, leaves]))


@settings(deadline=None, max_examples=30)
@given(TREES)
def test_pairs_of_the_mask(tree: Tree) -> None:
    """n² between leaves, and of every node the size of its subtree."""
    structure = TreeBatch.of([tree])
    leaves = len(tree.leaves())
    subtrees = sum(len(list(node.subtrees())) for node in tree.nodes())
    assert int(structure.subtree_mask.sum()) == leaves**2 + subtrees


@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_pairs_of_full_binary_trees(k: int) -> None:
    structure = TreeBatch.example(torch.ones(1, 2 ** (k + 1) - 1, dtype=torch.bool))
    n = 2**k
    assert structure.nodes.shape[1] == n - 1
    assert int((structure.paths >= 0).sum()) == n * k
    smaller = sum(2 ** (k - i) * (2**i - 1) for i in range(1, k + 1))
    assert int(structure.subtree_mask.sum()) == n * n + n * k + smaller


def test_a_leaf_attends_to_leaves_and_a_node_to_its_subtree() -> None:
    own, structure = layer(), TreeBatch.of([SHAPES["unary inside"], SHAPES["wide"]])
    x = torch.randn(*structure.padding.shape, 12, dtype=torch.float64)
    with attnlab.watch(own) as seen:
        own(x, structure=structure)
    (weights,) = [call.weights for call in seen]
    assert (weights[~structure.subtree_mask.expand_as(weights)] == 0).all()
    sums = weights.sum(-1)[structure.padding[:, None].expand(-1, 3, -1)]
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_the_root_attends_to_everything() -> None:
    own, structure = layer(), TreeBatch.of([SHAPES["unary inside"]])
    x = torch.randn(1, structure.padding.shape[1], 12, dtype=torch.float64)
    root = int(structure.roots[0])
    inside = own(x, structure=structure)[:, root]
    across = own(x[:, [root]], structure=structure, context=x)[:, 0]
    torch.testing.assert_close(inside, across)


@pytest.mark.parametrize("form", FORMS)
def test_cross_attention_by_hand(form: str) -> None:
    torch.manual_seed(0)
    own = TreeAttention(12, 3, form=form).double()  # type: ignore[arg-type]
    structure = TreeBatch.of([SHAPES["left"], SHAPES["unary inside"]])
    b, n = structure.padding.shape
    x, context = torch.randn(b, 5, 12).double(), torch.randn(b, n, 12).double()
    out = own(x, structure=structure, context=context)
    q = own.heads.split(own.heads.query(x), 4)
    k, v = (own.heads.split(linear(context), 4) for linear in (own.heads.key, own.heads.value))
    pad = torch.zeros(100, 2, dtype=torch.float64)
    tables = torch.cat([own.vertical, pad], 1), torch.cat([pad, own.horizontal], 1)
    v = FORMS["naive"](v, own.weights(context).transpose(1, 2), *tables, structure=structure)
    scores = (q @ k.mT / math.sqrt(4)).masked_fill(~structure.padding[:, None, None], -math.inf)
    torch.testing.assert_close(out, own.heads.merge(scores.softmax(-1) @ v))


def test_the_mixing_matrix_holds_shares_of_words_and_phrases() -> None:
    """Weights times what each value was gathered from, up to the constant of the embeddings."""
    own, structure = layer(), TreeBatch.of([SHAPES["unary inside"]])
    n = structure.padding.shape[1]
    x = torch.randn(1, n, 12, dtype=torch.float64)
    found = mixing_matrix(own, x, structure=structure)
    assert found.exact
    with attnlab.watch(own) as seen:
        own(x, structure=structure)
    (weights,) = [call.weights for call in seen]
    none = torch.zeros(1, n, dtype=torch.float64)
    hot = torch.eye(n, dtype=torch.float64).expand(1, 3, n, n)
    gathered = FORMS["naive"](hot, own.weights(x).transpose(1, 2), none, none, structure=structure)
    torch.testing.assert_close(found.matrix, weights @ gathered)


def test_wrong_calls() -> None:
    own, structure = layer(), TreeBatch.of([Tree.of(["r", "a", "b"])])
    x = torch.randn(1, 3, 12, dtype=torch.float64)
    with pytest.raises(ValueError, match="the trees of the sequences are missing"):
        own(x)
    with pytest.raises(ValueError, match="1 sequences of 3 tokens, but there are 1 of 2"):
        own(x[:, :2], structure=structure)
    with pytest.raises(TypeError, match="structure"):
        own(x, structure="(S a b)")
    with pytest.raises(ValueError, match="with a context"):
        own(x, structure.padding, structure=structure, context=x)
    with pytest.raises(ValueError, match="tree cannot be causal"):
        attnlab.build("tree", dim=12, causal=True)
    with pytest.raises(ValueError, match="cannot take"):
        attnlab.build("tree", dim=12, heads=3, positions="rope")


def test_models_read_trees() -> None:
    structure = TreeBatch.of([SHAPES["unary inside"], Tree("x")])
    tokens = torch.randint(0, 9, structure.padding.shape)
    given = {"attention": "tree", "dim": 12, "heads": 3, "layers": 2, "max_len": 16}
    reader = attnlab.TinyTransformer(9, kind="classifier", classes=5, positions="none", **given)
    logits = reader(tokens, structure=structure)
    alone = reader(tokens[1:, :1], structure=TreeBatch.of([Tree("x")]))
    torch.testing.assert_close(logits[1:], alone)
    changed = tokens.clone()
    changed[1, 1:] = (changed[1, 1:] + 1) % 9  # padding
    assert torch.equal(reader(changed, structure=structure)[1], logits[1])
    writer = attnlab.TinyTransformer(9, kind="encoder_decoder", **given)
    written = attnlab.generate(writer, tokens[:, :1], 3, source=tokens, structure=structure)
    assert written.shape == (2, 4)
    crosses = [block.cross for block in writer.decoder.blocks]
    assert all(isinstance(cross, TreeAttention) for cross in crosses)
    with pytest.raises(ValueError, match="no part of this model is told a structure"):
        attnlab.TinyTransformer(9, kind="classifier", classes=5, dim=12)(
            tokens, structure=structure
        )


@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_deep_trees_under_either_default_dtype(dtype: torch.dtype, default: torch.dtype) -> None:
    """Shares of tokens are divided in the dtype of the values, not in the default one."""
    structure = TreeBatch.of([left_branching(23)])
    made = drawn(structure, dtype)
    expected = FORMS["naive"](*(x.double() for x in made), structure=structure)
    torch.set_default_dtype(default)
    try:
        out = FORMS["parallel"](*made, structure=structure)
    finally:
        torch.set_default_dtype(torch.float32)
    atol = 16 * torch.finfo(dtype).eps * expected.abs().max().item()
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
