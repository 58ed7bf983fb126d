"""How a verdict is displayed, and that a solution cannot get one by raising it."""

import dataclasses
import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch

import attnlab
from attnlab import exercises
from attnlab.exercises import Verdict, check_attention
from attnlab.exercises.verdict import Mistake
from tests.faults import Faults

RIGHT, WRONG = Verdict(True, "It is `q @ k.T`."), Verdict(False, "a < b & c")


def test_says_so_in_plain_text() -> None:
    assert repr(RIGHT) == str(RIGHT) == "✓ Right. It is `q @ k.T`."
    assert repr(WRONG) == "✗ Not yet. a < b & c"


def test_says_so_without_colour() -> None:
    """Mark, word and the form of the border tell the two apart; text keeps the page's colour."""
    right, wrong = RIGHT._repr_html_(), WRONG._repr_html_()
    assert "✓" in right
    assert "Right." in right
    assert "solid" in right
    assert "✗" in wrong
    assert "Not yet." in wrong
    assert "double" in wrong
    for html in (right, wrong):
        assert "background" not in html
        assert ";color" not in html


def test_html_is_escaped_and_code_is_code() -> None:
    assert "<code>q @ k.T</code>" in RIGHT._repr_html_()
    assert "a &lt; b &amp; c" in WRONG._repr_html_()


def test_is_true_where_right_and_frozen() -> None:
    assert RIGHT
    assert not WRONG
    with pytest.raises(dataclasses.FrozenInstanceError):
        RIGHT.right = False  # type: ignore[misc]


def test_every_check_refuses_what_is_not_a_function() -> None:
    for name in exercises.__all__:
        check = getattr(exercises, name)
        if name.startswith("check_") and "function" in inspect.signature(check).parameters:
            verdict = check(None)
            assert not verdict.right
            assert verdict.message.startswith(f"`{name}` takes the function itself")


@pytest.mark.parametrize(
    "error", [ValueError(), KeyError("k"), RecursionError("deep"), Mistake("no")]
)
def test_no_exception_comes_through(error: Exception) -> None:
    def attention(*_: object) -> None:
        raise error

    verdict = check_attention(attention)
    assert not verdict.right
    assert f"raised {type(error).__name__}" in verdict.message


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Nameless:
    __name__ = None

    def __call__(self, *_: object) -> None:
        raise ValueError("x" * 100_000)


def raising(error: BaseException) -> Callable[..., None]:
    def function(*_: object) -> None:
        raise error

    return function


STRANGE = {
    "none": lambda *_: None,
    "text": lambda *_: "abc",
    "a large number": lambda *_: 10**400,
    "nan": lambda *_: torch.full((5, 3), torch.nan),
    "truth": lambda *_: torch.ones(5, 3).bool(),
    "complex": lambda *_: torch.ones(5, 3, dtype=torch.complex64),
    "sparse": lambda *_: torch.ones(5, 3).to_sparse(),
    "csr": lambda *_: torch.eye(5).to_sparse_csr(),
    "meta": lambda *_: torch.ones(5, 3, device="meta"),
    "three of meta": lambda *_: (torch.ones(5, 1, device="meta"),) * 3,
    "nested": lambda *_: torch.nested.as_nested_tensor([torch.ones(2)], layout=torch.jagged),
    "empty": lambda *_: torch.ones(0),
    "graph": lambda *_: torch.ones(5, 3, requires_grad=True),
    "its arguments": lambda *given: given,
    "one argument": lambda *given: given[0],
    "no such call": lambda: None,
    "exit": raising(SystemExit(2)),
    "end of a generator": raising(GeneratorExit()),
    "no text": raising(Unprintable()),
    "no name": Nameless(),
    "numpy": np.sum,
    "a class": dict,
}


@pytest.mark.parametrize("name", [name for name in exercises.__all__ if name.startswith("check_")])
def test_whatever_a_function_does_ends_in_a_short_verdict(name: str) -> None:
    faults = Faults()
    for words, function in STRANGE.items():
        with faults.of(words):
            given = (function, 3) if name == "check_number" else (function,)
            verdict = getattr(exercises, name)(*given)
            assert isinstance(verdict, Verdict)
            assert not verdict.right
            assert len(verdict.message) < 1500
            assert verdict._repr_html_()
    faults.none()


def test_an_interrupt_does_come_through() -> None:
    def attention(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_attention(attention)


def test_is_reached_from_the_front_door() -> None:
    assert attnlab.exercises.check_attention is check_attention
