"""The parameters of a function are read once, and are its own."""

from typing import Any

import pytest

from attnlab.core.options import parameters_of


def test_who_is_told_may_change_what_it_was_told() -> None:
    def build(dim: int, *, heads: int = 1, **others: Any) -> None: ...

    told = parameters_of(build)
    assert told == {"dim": int, "heads": int}
    told.clear()
    assert parameters_of(build) == {"dim": int, "heads": int}


def test_a_class_that_is_made_in_another_way_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Layer:
        def __init__(self, dim: int) -> None: ...

    def make(self: Layer, width: float) -> None: ...

    assert parameters_of(Layer) == {"dim": int}
    monkeypatch.setattr(Layer, "__init__", make)
    assert parameters_of(Layer) == {"width": float}
