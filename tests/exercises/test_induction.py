"""Lesson 61's checks: the keys of the induction share, and an induction head by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_induction_head, check_induction_keys
from attnlab.lens.find_heads import find_heads


def keys(tokens: Sequence[int], shift: int = 1, latest: int = 0, first: int = 0) -> Tensor:
    """By loops: `latest` 0 leaves the query itself out, 1 does not."""
    n = len(tokens)
    found = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            earlier = j + shift < i + latest and first <= j < i
            if earlier and tokens[j] == tokens[i] and 0 <= j + shift < n:
                found[i, j + shift] = True
    return found


def future(tokens: Sequence[int]) -> Tensor:
    n = len(tokens)
    found = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n - 1):
            found[i, j + 1] = tokens[j] == tokens[i]
    return found


def last(tokens: Sequence[int]) -> Tensor:
    found = keys(tokens)
    for row in found:
        places = row.nonzero().flatten()
        row[places[:-1]] = False
    return found


def head(x: Tensor, sharpness: float, **changed: Any) -> Tensor:
    """Query by query, each part of which may be changed."""
    n, out = len(x), []
    before = changed.get("before", lambda j: x[j - 1] if j else 0 * x[0])
    query = changed.get("query", lambda i: x[i])
    value = changed.get("value", lambda j: x[j])
    for i in range(n):
        seen = range(n if changed.get("future") else i + 1)
        scores = torch.stack([sharpness * query(i) @ before(j) for j in seen])
        out.append(sum(w * value(j) for w, j in zip(scores.softmax(0), seen, strict=True)))
    return torch.stack(out)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_induction_keys, keys),
    (check_induction_keys, lambda tokens: keys(tokens).long()),
    (check_induction_head, head),
]

KEYS_WRONG = {
    "duplicates": ("one place further on.", lambda t: keys(t, shift=0)),
    "itself": ("among its own keys", lambda t: keys(t, latest=1)),
    "exchanged": ("exchanged", lambda t: keys(t).T),
    "future": ("later occurrences", future),
    "last": ("each earlier occurrence", last),
    "back": ("not back", lambda t: keys(t, shift=-1)),
    "None": ("`return`", lambda t: None),
}

HEAD_WRONG = {
    "own": ("the token before it", lambda x, s: head(x, s, before=lambda j: x[j])),
    "queries": (
        "queries are shifted",
        lambda x, s: head(x, s, before=lambda j: x[j], query=lambda i: x[i - 1] if i else 0 * x[0]),
    ),
    "future": ("future", lambda x, s: head(x, s, future=True)),
    "roll": ("goes around", lambda x, s: head(x, s, before=lambda j: x[j - 1])),
    "values": (
        "values are shifted",
        lambda x, s: head(x, s, value=lambda j: x[j - 1] if j else 0 * x[0]),
    ),
    "sharpness": ("not multiplied", lambda x, s: head(x, 1.0)),
    "other way": (
        "the other way",
        lambda x, s: head(x, s, before=lambda j: x[j + 1] if j + 1 < len(x) else 0 * x[0]),
    ),
}


@pytest.mark.parametrize(("check", "solution"), RIGHT)
def test_right_solutions(check: Callable[..., Verdict], solution: Callable[..., Any]) -> None:
    verdict = check(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize("name", KEYS_WRONG)
def test_wrong_keys(name: str, refuses: Callable[[Verdict, str], None]) -> None:
    words, solution = KEYS_WRONG[name]
    refuses(check_induction_keys(solution), words)


@pytest.mark.parametrize("name", HEAD_WRONG)
def test_wrong_heads(name: str, refuses: Callable[[Verdict, str], None]) -> None:
    words, solution = HEAD_WRONG[name]
    refuses(check_induction_head(solution), words)


def test_messages_differ(tells_apart: Callable[..., None]) -> None:
    tells_apart(check_induction_keys, KEYS_WRONG)
    tells_apart(check_induction_head, HEAD_WRONG)


def test_the_keys_are_those_that_the_head_finder_counts() -> None:
    tokens = torch.randint(4, (11,), generator=torch.Generator().manual_seed(0))
    counted = keys(tokens.tolist())
    w = torch.rand(1, 1, 11, 11, generator=torch.Generator().manual_seed(1)).tril()
    w = w / w.sum(-1, keepdim=True)
    (found,) = find_heads({"a": w}, tokens[None])
    shares = (w[0, 0] * counted).sum(1)[counted.any(1)]
    assert found.shares["induction"] == pytest.approx(shares.mean().item(), abs=1e-6)


def test_a_sharp_head_passes_on_what_came_next() -> None:
    """The head of the solution, on a run of different tokens that repeats."""
    x = torch.eye(6)[torch.arange(18) % 6]
    out = head(x, 50.0)
    assert torch.allclose(out[6:], torch.eye(6)[torch.arange(7, 19) % 6], atol=1e-6)
