"""A probe is the identity, heard only by those who record."""

import pytest
import torch

from attnlab.core.probe import listening, note, record, unheard


def test_note_is_the_identity() -> None:
    value = torch.randn(3)
    assert note("x", value) is value
    with record() as notes:
        assert note("x", value) is value
    assert notes["x"][0] is value


def test_nothing_is_computed_outside_a_record_block() -> None:
    calls = []
    lazy = lambda: calls.append(1) or 7  # noqa: E731
    assert note("lazy", lazy) is lazy
    assert not calls
    with record() as notes:
        note("lazy", lazy)
    assert calls == [1]
    assert notes["lazy"] == [7]


def test_blocks_nest_and_end() -> None:
    with record() as outer:
        note("a", 1)
        with record() as inner:
            note("b", 2)
        note("a", 3)
    note("a", 4)
    assert list(outer) == [("a", 1), ("b", 2), ("a", 3)]
    assert list(inner) == [("b", 2)]
    assert outer.names() == ["a", "b"]
    assert outer.last("a") == 3
    assert outer.last("c") is None
    assert len(outer) == 3
    assert "b" in outer
    assert not listening()


def test_block_ends_when_it_raises() -> None:
    with pytest.raises(RuntimeError, match="stop"), record():
        raise RuntimeError("stop")
    assert not listening()


def test_unknown_note_is_answered() -> None:
    with record() as notes:
        note("weights", 1)
    with pytest.raises(KeyError, match="no note is called 'weight'; noted were: weights"):
        notes["weight"]


def test_compiled_graphs_tell_nothing() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return note("x", x * 2)

    with record() as notes:
        out = torch.compile(double, fullgraph=True, backend="eager")(torch.ones(3))
    assert (out == 2).all()
    assert len(notes) == 0


def test_what_is_unheard_is_not_kept_and_the_rest_is() -> None:
    with record() as notes:
        note("before", 1)
        with unheard():
            note("inside", 2)
            with record() as inner:
                note("inner", 3)
        note("after", 4)
    assert (list(notes), list(inner)) == ([("before", 1), ("after", 4)], [("inner", 3)])
