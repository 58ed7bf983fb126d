"""Lesson 42's checks: the relative shift, and rows of clipped distances."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_clipped_rows, check_memory_layer, check_shift
from attnlab.mechanisms.positions.relative import relative_shift
from attnlab.mechanisms.positions.shaw import clipped_distances


def by_loops(scores: Tensor) -> Tensor:
    n = len(scores)
    return torch.stack([torch.stack([row[n - 1 - i + j] for j in range(n)]) for i, row in
                        enumerate(scores)])  # fmt: skip


def viewed(scores: Tensor, sides: tuple[int, int], rows: slice) -> Tensor:
    n, columns = scores.shape
    return F.pad(scores, sides).reshape(columns + 1, n)[rows].reshape(n, columns)[:, :n]


def rows_of(n: int, k: int) -> Tensor:
    return torch.tensor([[min(max(j - i, -k), k) + k for j in range(n)] for i in range(n)])


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_shift, by_loops),
    (check_shift, lambda s: relative_shift(s[None, None])[0, 0, :, : len(s)]),
    (check_shift, lambda s: viewed(s, (1, 0), slice(1, None))),
    (check_clipped_rows, rows_of),
    (check_clipped_rows, lambda n, k: clipped_distances(n, n, 2 * k + 1, None, "cpu")[0]),
]

SHIFT_WRONG: dict[str, tuple[str, Any]] = {
    "first columns": ("Nothing is shifted", lambda s: s[:, : len(s)]),
    "last columns": ("These are the last n columns", lambda s: s[:, -len(s) :]),
    "sign": ("the wrong sign", lambda s: by_loops(s.flip(1))),
    "by i": ("move by i", lambda s: by_loops(s.flip(0)).flip(0)),
    "early": ("One column off", lambda s: by_loops(s.roll(1, 1))),
    "late": ("One column off", lambda s: by_loops(s.roll(-1, 1))),
    "right": ("zeros are on the right: pad", lambda s: viewed(s, (0, 1), slice(1, None))),
    "right and last": ("and the last row is dropped", lambda s: viewed(s, (0, 1), slice(-1))),
    "last row": ("The last row of the view", lambda s: viewed(s, (1, 0), slice(-1))),
    "transposed": ("transposed", lambda s: by_loops(s).mT),
    "in place": ("still needs", lambda s: by_loops(s) + 0 * s.mul_(2)[:, :1]),
    "None": ("`return`", lambda s: None),
    "raises": ("raised", lambda s: s @ s),
}

ROWS_WRONG: dict[str, tuple[str, Any]] = {
    "sign": ("key minus query", lambda n, k: rows_of(n, k).mT),
    "from 0": ("The k is missing", lambda n, k: rows_of(n, k) - k),
    "unclipped": ("Nothing is clipped", lambda n, k: rows_of(n, 9) - 9 + k),
    "clipped late": ("It clips after adding k", lambda n, k: (rows_of(n, 9) - 9 + k).clamp(0, k)),
    "a row more": ("one row too many", lambda n, k: (rows_of(n, 9) - 9 + k).clamp(0, 2 * k + 1)),
    "absolute": ("Both sides share rows", lambda n, k: (rows_of(n, k) - k).abs()),
    "around": ("wrap around", lambda n, k: (rows_of(n, 9) - 9 + k) % (2 * k + 1)),
    "None": ("`return`", lambda n, k: None),
    "row": ("Wrong shape", lambda n, k: rows_of(n, k)[0]),
}

TABLES = [(check_shift, SHIFT_WRONG), (check_clipped_rows, ROWS_WRONG)]
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_are_right(check: Callable[..., Verdict], answer: Any) -> None:
    verdict = check(answer)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "sentence", "answer"), WRONG)
def test_mistakes_are_named(check: Callable[..., Verdict], sentence: str, answer: Any) -> None:
    verdict = check(answer)
    assert not verdict.right
    assert sentence in verdict.message, verdict.message


# ---- a layer with a memory


def pair_by_pair(q, k, v, u, t, r):
    (h, n, d), m = q.shape, k.shape[1]
    out = torch.zeros(h, n, v.shape[-1], dtype=q.dtype)
    for a in range(h):
        for i in range(n):
            at = m - n + i
            scores = [
                (q[a, i] + u[a]) @ k[a, j] + (q[a, i] + t[a]) @ r[a, m - 1 - (at - j)]
                for j in range(at + 1)
            ]
            out[a, i] = (torch.stack(scores) / d**0.5).softmax(0) @ v[a, : at + 1]
    return out  # fmt: skip


def by_index(
    q,
    k,
    v,
    u,
    t,
    r,
    *,
    mask=True,
    first=1,
    column=lambda at, j, m: m - 1 - at + j,
    scale=(True, True),
    axis=-1,
):
    (n, d), m = q.shape[1:], k.shape[1]
    at, j = torch.arange(m - n, m)[:, None], torch.arange(m)
    content = (q + u[:, None]) @ k.mT / (d**0.5 if scale[0] else 1)
    position = (q + t[:, None]) @ r.mT / (d**0.5 if scale[1] else 1)
    index = column(at, j, m).clamp(0, m - 1).expand(len(q), n, m)
    scores = content + position.gather(-1, index)
    if mask:
        scores = scores.masked_fill(j >= at + first, -torch.inf)
    return scores.softmax(axis) @ v


def other(**changes):
    return lambda *given: by_index(*given, **changes)


MEMORY_WRONG = {
    "no memory in the mask": (
        "forgets the memory",
        lambda q, k, *rest: by_index(q, k, *rest, first=1 - (k.shape[1] - q.shape[1])),
    ),
    "not itself": ("its own key", other(first=0)),
    "not moved": ("as they are", other(column=lambda at, j, m: j + 0 * at)),
    "u and t": (
        "u and t are exchanged", lambda q, k, v, u, t, r: by_index(q, k, v, t, u, r)),
    "no t": ("t is missing", lambda q, k, v, u, t, r: by_index(q, k, v, u, 0 * t, r)),
    "no u": ("u is missing", lambda q, k, v, u, t, r: by_index(q, k, v, 0 * u, t, r)),
    "no root": ("not divided by √d", other(scale=(False, False))),
    "half a root": ("first product", other(scale=(True, False))),
    "columns": ("softmax runs over the queries", other(axis=-2)),
    "none": ("`return`", lambda *given: None),
}  # fmt: skip


def shifted(x):
    h, n, m = x.shape
    return F.pad(x, (1, 0)).reshape(h, m + 1, n)[:, 1:].reshape(h, n, m)


def without_mask(q, k, v, u, t, r):
    scores = (q + u[:, None]) @ k.mT + shifted((q + t[:, None]) @ r.mT)
    return (scores / q.shape[-1] ** 0.5).softmax(-1) @ v


def ascending(q, k, v, u, t, r):
    (n, d), m = q.shape[1:], k.shape[1]
    scores = (q + u[:, None]) @ k.mT + shifted((q + t[:, None]) @ r.flip(1).mT)
    later = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)
    return (scores / d**0.5).masked_fill(later, -torch.inf).softmax(-1) @ v


MEMORY_WRONG |= {
    "no mask": ("Later tokens", without_mask),
    "ascending": ("wrong order", ascending),
}


def test_a_layer_with_a_memory(refuses):
    verdict = check_memory_layer(by_index)
    assert verdict.right, verdict.message
    refuses(check_memory_layer(pair_by_pair), "there is a loop")


@pytest.mark.parametrize(("words", "solution"), MEMORY_WRONG.values(), ids=MEMORY_WRONG)
def test_mistakes_of_a_layer_with_a_memory_by_name(words, solution, refuses):
    refuses(check_memory_layer(solution), words)
