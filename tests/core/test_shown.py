"""What an error shows of a value is short, whatever the value is."""

import torch

import attnlab
from attnlab.core.shown import shown


def test_of_tensors_only_the_shape_is_shown() -> None:
    state = attnlab.build("full", dim=4, heads=2, causal=True).step(torch.randn(1, 3, 4))[1]
    assert "tensor(" in repr(state)
    assert "a tensor of shape (1, 2, 3, 2)" in shown(state)
    assert "tensor(" not in shown(state)
    assert shown({"a": torch.ones(3)}) == "{'a': a tensor of shape (3,)}"


def test_a_long_value_is_cut() -> None:
    assert shown([1] * 1000) == f"[{'1, ' * 12}...]"
    assert len(shown("x" * 1000)) <= 202


def test_a_short_value_is_shown_as_it_is() -> None:
    for value in (1.5, "x", None, (1, 2), 2**70, int):
        assert shown(value) == repr(value)
