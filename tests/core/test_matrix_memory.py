"""Layers that keep a matrix: what one has kept, no other goes on with."""

import copy
import itertools
import pickle

import pytest
import torch

from attnlab.catalog import build
from attnlab.core.matrix_memory import MatrixMemory, MatrixState

ALIKE = (("deltanet", "gated_deltanet", "kimi_delta"), ("gated_linear", "lightning"))
"""Pages whose states have equal shapes."""
PAIRS = [pair for names in ALIKE for pair in itertools.permutations(names, 2)]


def page(name: str) -> MatrixMemory:
    layer = build(name, dim=6, heads=2, causal=True)
    assert isinstance(layer, MatrixMemory)
    return layer


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_state_of_another_page_is_refused(one: str, other: str) -> None:
    mine, theirs = (page(name) for name in (one, other))
    x = torch.randn(2, 5, 6)
    state, foreign = mine.step(x)[1], theirs.step(x)[1]
    assert [part.shape for part in state] == [part.shape for part in foreign]
    kinds = f"a {type(mine).__name__}.State, got a {type(theirs).__name__}.State"
    with pytest.raises(TypeError, match=f"the state should be {kinds}: give back what step"):
        mine.step(x, foreign)
    mine.step(x, type(state)(*foreign))  # whoever says that it is meant


@pytest.mark.parametrize("name", [name for names in ALIKE for name in names])
def test_a_state_is_copied_and_stored(name: str) -> None:
    layer = page(name)
    x = torch.randn(2, 5, 6)
    with torch.no_grad():
        state = layer.step(x)[1]
        assert isinstance(state, MatrixState)
        for again in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
            assert type(again) is type(state)
            assert torch.equal(layer.step(x, again)[0], layer.step(x, state)[0])
