"""Batches of trees as tensors, compared with what Python finds by walking each tree."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import NONE, TreeBatch

WORDS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    WORDS.map(Tree),
    lambda below: st.lists(below, min_size=1, max_size=4).map(lambda c: Tree("n", tuple(c))),
    max_leaves=12,
)


def right_branching(depth: int) -> Tree:
    tree = Tree("end")
    for _ in range(depth):
        tree = Tree("n", (Tree("word"), tree))
    return tree


def left_branching(depth: int) -> Tree:
    tree = Tree("end")
    for _ in range(depth):
        tree = Tree("n", (tree, Tree("word")))
    return tree


def unary_chain(depth: int) -> Tree:
    tree = Tree("end")
    for _ in range(depth):
        tree = Tree("n", (tree,))
    return tree


def walked(tree: Tree, above: tuple[int, ...] = (), start: int = 0) -> list[dict]:
    """Every subtree with its span, what is above it, and its height; nodes before children."""
    own = {"tree": tree, "above": above, "start": start, "height": 0}
    found, stop = [own], start if tree.children else start + 1
    for child in tree.children:
        below = walked(child, (id(own), *above), stop)
        stop = below[0]["stop"]
        own["height"] = max(own["height"], below[0]["height"] + 1)
        found += below
    own["stop"] = stop
    return found


def in_order(tree: Tree) -> list[dict]:
    """Leaves first, then nodes: the order of the tokens."""
    found = walked(tree)
    return [x for x in found if not x["tree"].children] + [x for x in found if x["tree"].children]


@settings(deadline=None, max_examples=60)
@given(st.lists(TREES, min_size=1, max_size=3))
def test_what_is_found_is_what_walking_finds(trees: list[Tree]) -> None:
    batch = TreeBatch.of(trees)
    for row, tree in enumerate(trees):
        tokens = in_order(tree)
        place = {id(token): at for at, token in enumerate(tokens)}
        assert int(batch.padding[row].sum()) == len(tokens)
        for at, token in enumerate(tokens):
            above = [place[other] for other in token["above"]]
            assert batch.parents[row, at] == (above[0] if above else NONE)
            assert batch.depth[row, at] == len(above)
            assert batch.height[row, at] == token["height"]
            assert (batch.start[row, at], batch.stop[row, at]) == (token["start"], token["stop"])
            assert batch.is_leaf[row, at] == (not token["tree"].children)
            below = {o for o, other in enumerate(tokens) if at == o or at in _above(other, place)}
            assert set(batch.below[row, at].nonzero().flatten().tolist()) == below
            if not token["tree"].children:
                path = batch.paths[row, at].tolist()
                assert path == above + [NONE] * (len(path) - len(above))
        assert batch.roots[row] == next(i for i, t in enumerate(tokens) if not t["above"])
        nodes = [int(x) for x in batch.nodes[row] if x != NONE]
        assert sorted(nodes) == [i for i, t in enumerate(tokens) if t["tree"].children]
        depths = batch.depth[row, nodes].tolist()
        assert depths == sorted(depths, reverse=True)


def _above(token: dict, place: dict) -> set[int]:
    return {place[other] for other in token["above"]}


@settings(deadline=None, max_examples=60)
@given(st.lists(TREES, min_size=1, max_size=3))
def test_levels_hold_each_node_once_after_its_children(trees: list[Tree]) -> None:
    batch = TreeBatch.of(trees)
    n = batch.parents.shape[1]
    flat = (batch.parents + torch.arange(len(trees))[:, None] * n).flatten()
    done = set(batch.is_leaf.flatten().nonzero().flatten().tolist())
    for level in batch.levels:
        assert set(level.children.tolist()) <= done
        assert torch.equal(flat[level.children], level.nodes[level.parents])
        done |= set(level.nodes.tolist())
    assert done == set(batch.padding.flatten().nonzero().flatten().tolist())
    children = sum(len(level.children) for level in batch.levels)
    assert children == int((batch.parents != NONE).sum())


@settings(deadline=None, max_examples=60)
@given(TREES)
def test_children_are_those_of_the_tree(tree: Tree) -> None:
    tokens = in_order(tree)
    index = {id(token["tree"]): at for at, token in enumerate(tokens)}
    if len(index) < len(tokens):
        return  # one object in two places of the tree
    found = TreeBatch.of([tree]).children(0)
    seen: set[int] = set()
    for token, children in found.items():
        assert children == [index[id(child)] for child in tokens[token]["tree"].children]
        assert set(children) <= seen
        seen.add(token)
    assert len(seen) == len(tokens)


@pytest.mark.parametrize("make", [right_branching, left_branching, unary_chain])
def test_depth_60(make) -> None:  # type: ignore[no-untyped-def]
    batch = TreeBatch.of([make(60), Tree("alone")])
    assert batch.depth.max() == 60
    assert batch.height.max() == 60
    assert len(batch.levels) == 60
    assert batch.paths.shape[2] == 60


def test_examples_are_trees_of_the_real_tokens() -> None:
    sizes = torch.tensor([[11], [7], [2], [1], [0]])
    padding = torch.arange(11) < sizes
    batch = TreeBatch.example(padding)
    assert torch.equal(batch.padding, padding)
    assert ((batch.parents == NONE) & padding).sum(1).tolist() == [1, 1, 1, 1, 0]
    assert batch.is_leaf.sum(1).tolist() == [6, 4, 1, 1, 0]
    assert batch.depth.max() == 3
    alone = TreeBatch.example(padding[1:2, :7])
    assert torch.equal(alone.parents[0], batch.parents[1, :7])
    holes = TreeBatch.example(torch.tensor([[True, False, True, True]]))
    assert holes.parents.tolist() == [[3, NONE, 3, NONE]]


def test_rows_and_devices() -> None:
    batch = TreeBatch.of([Tree.of(["r", "a", "b"]), Tree("x"), Tree.of(["r", "a"])])
    assert batch[1:].parents.tolist() == batch.parents[1:].tolist()
    assert len(batch[1:]) == 2
    assert batch.to("meta").paths.device.type == "meta"
    assert len(TreeBatch.example(torch.ones(0, 7, dtype=torch.bool))) == 0


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([[1, 0]], "row 0 has a cycle: the parents of token 0"),
        ([[-1, -1]], "row 0 has 2 tokens without a parent"),
        ([[5, -1]], r"0 … 1, or -1, got 5 at token 0 of row 0"),
        ([[4, 3, 4, -1, 3]], "the leaves below a node stand side by side"),
    ],
)
def test_what_is_no_tree_is_refused(parents: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeBatch.from_parents(torch.tensor(parents))


def test_wrong_calls() -> None:
    tree = Tree.of(["r", "a", "b"])
    with pytest.raises(ValueError, match="at least one tree, got none"):
        TreeBatch.of([])
    with pytest.raises(ValueError, match=r"tree 1 has 3 tokens \(leaves and nodes\), .*length=2"):
        TreeBatch.of([Tree("x"), tree], length=2)
    with pytest.raises(ValueError, match="whole numbers"):
        TreeBatch.from_parents(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="bool of shape"):
        TreeBatch.from_parents(torch.tensor([[1, -1]]), torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="which is padding"):
        TreeBatch.from_parents(torch.tensor([[1, -1]]), torch.tensor([[True, False]]))
    batch = TreeBatch.of([tree])
    with pytest.raises(ValueError, match=r"give structure=TreeBatch"):
        TreeBatch.fitting(None, torch.zeros(1, 3, 2), None)
    with pytest.raises(ValueError, match="1 sequences of 3 tokens, but there are 1 of 4"):
        TreeBatch.fitting(batch, torch.zeros(1, 4, 2), None)
    with pytest.raises(ValueError, match="differs from that of the structure"):
        TreeBatch.fitting(batch, torch.zeros(1, 3, 2), torch.tensor([[True, True, False]]))
    real = torch.ones(1, 3, dtype=torch.bool)
    assert TreeBatch.fitting(batch, torch.zeros(1, 3, 2), real) is batch


def test_deep_trees_have_a_leaf_and_the_next_node_at_every_node() -> None:
    padding = torch.tensor([[True] * 9, [True] * 3 + [False] * 2 + [True] * 4, [False] * 9])
    structure = TreeBatch.deep(padding)
    assert torch.equal(structure.padding, padding)
    assert structure.depth.amax(1).tolist() == [4, 3, 0]
    nine = Tree(
        "p",
        (
            Tree("a"),
            Tree("p", (Tree("b"), Tree("p", (Tree("c"), Tree("p", (Tree("d"), Tree("e"))))))),
        ),
    )
    same = TreeBatch.of([nine])
    assert torch.equal(structure.parents[:1], same.parents)
    for n in range(1, 12):
        one = TreeBatch.deep(torch.ones(1, n, dtype=torch.bool))
        assert one.is_leaf.sum() == (n + 1) // 2
