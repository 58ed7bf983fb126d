"""The child-sum Tree-LSTM: an LSTM on chains, a sum over children elsewhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attnlab
from attnlab.mechanisms.structure.tree_lstm import FORMS
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch
from tests.structures.test_tree_batch import TREES, left_branching, right_branching, unary_chain

WIDTH = 3


def drawn(structure: TreeBatch) -> tuple[Tensor, Tensor]:
    b, n = structure.padding.shape
    x = torch.randn(b, n, 4, WIDTH, dtype=torch.float64).requires_grad_()
    return x, torch.randn(4, WIDTH, WIDTH, dtype=torch.float64).requires_grad_()


@settings(deadline=None, max_examples=20)
@given(st.lists(TREES, min_size=1, max_size=3))
def test_forms_are_equal_in_values_and_gradients(trees: list[Tree]) -> None:
    structure = TreeBatch.of(trees)
    made = drawn(structure)
    direction = torch.randn(*structure.padding.shape, WIDTH, dtype=torch.float64)
    outs = [form(*made, structure=structure) for form in FORMS.values()]
    torch.testing.assert_close(outs[1], outs[0])
    gradients = [
        torch.autograd.grad((out * direction).sum(), made, materialize_grads=True) for out in outs
    ]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("make", [right_branching, left_branching, unary_chain])
def test_depth_60(make) -> None:  # type: ignore[no-untyped-def]
    structure = TreeBatch.of([make(60)])
    made = drawn(structure)
    one, other = (form(*made, structure=structure) for form in FORMS.values())
    torch.testing.assert_close(other, one)


@pytest.mark.parametrize("form", FORMS)
def test_on_a_chain_it_is_an_lstm(form: str) -> None:
    n, dim = 7, 5
    own = attnlab.build("tree_lstm", dim=dim, form=form).double()
    lstm = nn.LSTM(dim, dim, batch_first=True).double()
    order = [0, 3, 2, 1]  # PyTorch has input, forget, cell, output; ours is i, o, u, f
    with torch.no_grad():
        weight = lstm.weight_ih_l0.unflatten(0, (4, dim))[order]
        own.inputs.weight.copy_(weight.flatten(0, 1))
        bias = (lstm.bias_ih_l0 + lstm.bias_hh_l0).unflatten(0, (4, dim))[order]
        own.inputs.bias.copy_(bias.flatten())
        own.recurrent.copy_(lstm.weight_hh_l0.unflatten(0, (4, dim))[order].mT)
    x = torch.randn(2, n, dim, dtype=torch.float64)
    chain = TreeBatch.from_parents(torch.tensor([[*range(1, n), -1]] * 2))
    torch.testing.assert_close(own(x, structure=chain), lstm(x)[0])


def test_a_node_by_hand() -> None:
    """One node with two leaves, the equations written out."""
    structure = TreeBatch.of([Tree.of(["r", "a", "b"])])
    x, (i, o, u, f) = drawn(structure)
    sig, tanh = torch.sigmoid, torch.tanh
    c = [sig(x[0, j, 0]) * tanh(x[0, j, 2]) for j in (0, 1)]
    h = [sig(x[0, j, 1]) * tanh(c[j]) for j in (0, 1)]
    total = h[0] + h[1]
    kept = sum(sig(x[0, 2, 3] + h[k] @ f) * c[k] for k in (0, 1))
    memory = sig(x[0, 2, 0] + total @ i) * tanh(x[0, 2, 2] + total @ u) + kept
    root = sig(x[0, 2, 1] + total @ o) * tanh(memory)
    for form in FORMS.values():
        out = form(x, torch.stack([i, o, u, f]), structure=structure)
        torch.testing.assert_close(out[0], torch.stack([*h, root]))


def test_the_order_of_children_does_not_matter() -> None:
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    own = attnlab.build("tree_lstm", dim=6).double()
    structure = TreeBatch.of([Tree.of(["r", "a", "b", "c"])])
    swapped = own(x[:, [2, 0, 1, 3]], structure=structure)
    torch.testing.assert_close(swapped[:, 3], own(x, structure=structure)[:, 3])


def test_padding_is_zero() -> None:
    structure = TreeBatch.of([Tree.of(["r", "a", "b"]), Tree("x")])
    out = attnlab.build("tree_lstm", dim=6)(torch.randn(2, 3, 6), structure=structure)
    assert (out[1, 1:] == 0).all()
    assert (out[1, 0] != 0).any()


def test_wrong_calls() -> None:
    own = attnlab.build("tree_lstm", dim=6)
    with pytest.raises(ValueError, match="the trees of the sequences are missing"):
        own(torch.randn(1, 3, 6))
    with pytest.raises(ValueError, match="tree_lstm cannot be causal"):
        attnlab.build("tree_lstm", dim=6, causal=True)
