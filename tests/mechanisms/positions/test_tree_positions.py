"""Tree positions: stacks of the steps from the root."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlab
from attnlab.measure.count import count
from attnlab.mechanisms.positions.tree_positions import FORMS, TreePositionOptions, naive
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch
from tests.structures.test_tree_batch import TREES, right_branching

DIM = 26


@settings(deadline=None, max_examples=30)
@given(st.lists(TREES, min_size=1, max_size=3))
def test_forms_are_equal_in_values_and_gradients(trees: list[Tree]) -> None:
    structure = TreeBatch.of(trees)
    x = torch.randn(*structure.padding.shape, DIM, dtype=torch.float64)
    decays = torch.tensor([0.3, -0.8], dtype=torch.float64).requires_grad_()
    options = TreePositionOptions(branches=3, steps=4)
    direction = torch.randn_like(x)
    outs = [form(x, decays, structure=structure, options=options) for form in FORMS.values()]
    torch.testing.assert_close(outs[1], outs[0])
    one, other = (torch.autograd.grad((out * direction).sum(), decays)[0] for out in outs)
    torch.testing.assert_close(other, one)


def test_paths_by_hand() -> None:
    """a is the first child of the root, c the second child of its second child."""
    structure = TreeBatch.of([Tree.of(["r", "a", ["q", "b", "c"]])])
    x = torch.zeros(1, 5, 6, dtype=torch.float64)
    p = torch.tensor([0.5], dtype=torch.float64).atanh()
    out = naive(x, p, structure=structure, options=TreePositionOptions(branches=2, steps=3))
    unit = (0.75 * 3) ** 0.5
    rows = [
        [1, 0, 0, 0, 0, 0],  # a
        [1, 0, 0, 0.5, 0, 0],  # b: first child of q, which is a second child
        [0, 1, 0, 0.5, 0, 0],  # c
        [0, 0, 0, 0, 0, 0],  # the root
        [0, 1, 0, 0, 0, 0],  # q
    ]
    torch.testing.assert_close(out[0], unit * torch.tensor(rows, dtype=torch.float64))


def test_one_matrix_leads_to_every_parent() -> None:
    """Where no step is forgotten: the stack moves up by one step and is divided by p."""
    structure = TreeBatch.example(torch.ones(1, 15, dtype=torch.bool))
    p, (c, s) = torch.tensor([0.6], dtype=torch.float64).atanh(), (2, 5)
    given = {"structure": structure, "options": TreePositionOptions(branches=c, steps=s)}
    stacks = naive(torch.zeros(1, 15, c * s, dtype=torch.float64), p, **given)[0]
    up = torch.zeros(c * s, c * s, dtype=torch.float64)
    up[torch.arange(c * (s - 1)), torch.arange(c, c * s)] = 1 / 0.6
    parents = structure.parents[0]
    children = (parents >= 0).nonzero().flatten()
    torch.testing.assert_close(stacks[children] @ up.T, stacks[parents[children]])


def test_deep_and_wide_trees() -> None:
    deep, wide = right_branching(60), Tree("n", tuple(Tree("w") for _ in range(9)))
    layer = attnlab.build("tree_positions", dim=32)
    structure = TreeBatch.of([deep, wide])
    out = layer(torch.zeros(*structure.padding.shape, 32), structure=structure)
    assert torch.isfinite(out).all()
    assert torch.equal(out[1, 3], out[1, 8])  # the fourth child and the ninth
    assert not torch.equal(out[1, 2], out[1, 3])


def test_a_model_tells_two_trees_of_the_same_words_apart() -> None:
    trees = [Tree.of(["r", ["q", "a", "b"], "c"]), Tree.of(["r", "a", ["q", "b", "c"]])]
    tokens = torch.tensor([[1, 2, 3, 4, 5]] * 2)
    sizes = {"dim": 32, "heads": 2, "layers": 1, "kind": "classifier", "classes": 3}
    told = attnlab.TinyTransformer(9, positions="tree_positions", **sizes)
    one, other = told(tokens, structure=TreeBatch.of(trees))
    assert not torch.allclose(one, other)
    for name, parameter in told.named_parameters():
        if "decays" in name:
            (grad,) = torch.autograd.grad(one.sum(), parameter)
            assert (grad != 0).any()


def test_wrong_calls() -> None:
    for options in ({"branches": 25}, {"branches": 5, "steps": 5}):
        with pytest.raises(ValueError, match="wider than dim=24"):
            attnlab.build("tree_positions", dim=24, **options)
    layer = attnlab.build("tree_positions", dim=32)
    with pytest.raises(ValueError, match="the trees of the sequences are missing"):
        layer(torch.zeros(1, 3, 32))
    with pytest.raises(ValueError, match="width dim=32, got 31"):
        layer(torch.zeros(1, 3, 31), structure=TreeBatch.of([Tree.of(["r", "a", "b"])]))


@pytest.mark.parametrize("example", [TreeBatch.example, TreeBatch.deep])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_does_not_depend_on_the_depth(form: str, example: Any) -> None:
    """The cost on the card, in balanced trees and in deep ones."""
    n, dim = 255, 48
    layer, structure = attnlab.build("tree_positions", dim=dim), example(torch.ones(1, n) > 0)

    def positions(x: torch.Tensor) -> torch.Tensor:
        return FORMS[form](x, layer.decays, structure=structure, options=layer.options)

    x = torch.randn(1, n, dim)
    positions(x)  # what a structure finds once is found before anything is counted
    written = count(positions, x).elements_written
    cost = attnlab.card("tree_positions").cost("time", form)
    claimed = float(cost.subs({x: {"n": n, "dim": dim}[x.name] for x in cost.free_symbols}))
    assert 0.8 * claimed < written < 1.2 * claimed
