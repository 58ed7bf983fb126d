"""Lesson 10's checks: the strided predicate, and the columns that sum up a block."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.core import patterns
from attnlab.exercises import Verdict, check_strided, check_summaries
from attnlab.mechanisms.fixed.sparse_transformer import Factors


def strided(i: Tensor, j: Tensor, s: int) -> Tensor:
    return (j <= i) & ((j >= i - s) | ((i - j) % s == 0))


def strided_by_loops(i: Tensor, j: Tensor, s: int) -> Tensor:
    rows = [[b <= a and (a - b <= s or a % s == b % s) for b in j[0].tolist()] for a in i[:, 0]]
    return torch.tensor(rows)


def by_the_page(i: Tensor, j: Tensor, s: int) -> Tensor:
    return Factors(stride=s).pattern().dense(len(i))


def summaries(j: Tensor, s: int, c: int) -> Tensor:
    return j % s >= s - c


def summaries_by_counting(j: Tensor, s: int, c: int) -> Tensor:
    return torch.tensor([(place + c) // s > place // s for place in j.tolist()])


def summaries_by_the_page(j: Tensor, s: int, c: int) -> Tensor:
    return patterns.summaries(s, c).dense(len(j))[-1]


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_strided, strided),
    (check_strided, strided_by_loops),
    (check_strided, by_the_page),
    # The released code's window is one short, but i − s stands in the column: the same union.
    (check_strided, lambda i, j, s: (j <= i) & ((i - j < s) | ((i - j) % s == 0))),
    (check_strided, lambda i, j, s: strided(i, j, s).float()),
    (check_summaries, summaries),
    (check_summaries, summaries_by_counting),
    (check_summaries, summaries_by_the_page),
]

STRIDED_WRONG: dict[str, tuple[str, Any]] = {
    "column ahead": (
        "is true for later keys as well",
        lambda i, j, s: ((j <= i) & (j >= i - s)) | ((i - j) % s == 0),
    ),
    "all ahead": ("j ≤ i is missing", lambda i, j, s: (i - j <= s) | ((i - j) % s == 0)),
    "no sign": (
        "with `.abs()` the next s keys",
        lambda i, j, s: ((i - j).abs() <= s) | ((i - j) % s == 0),
    ),
    "and": ("intersection", lambda i, j, s: (j <= i) & (i - j <= s) & ((i - j) % s == 0)),
    "window": ("only the window", lambda i, j, s: (j <= i) & (i - j <= s)),
    "column": ("only the column", lambda i, j, s: (j <= i) & ((i - j) % s == 0)),
    "still": ("move with the query", lambda i, j, s: (j <= i) & ((i - j <= s) | (j % s == 0))),
    "left": ("to the left", lambda i, j, s: (j <= i) & ((i - j <= s) | ((i - j) % s == 1))),
    "right": ("to the right", lambda i, j, s: (j <= i) & ((i - j <= s) | ((i - j + 1) % s == 0))),
    "block": (
        "the window is a block",
        lambda i, j, s: (j <= i) & ((i // s == j // s) | ((i - j) % s == 0)),
    ),
    "blind": ("sees itself", lambda i, j, s: (i != j) & strided(i, j, s)),
    "turned": ("exchanged", lambda i, j, s: strided(j, i, s)),
    "longer": ("one too long", lambda i, j, s: (j <= i) & ((i - j < s + 2) | ((i - j) % s == 0))),
    "either": (
        "`^` leaves out the keys",
        lambda i, j, s: (j <= i) & ((i - j <= s) != ((i - j) % s == 0)),
    ),
    "fixed": (
        "the other pattern",
        lambda i, j, s: (j <= i) & ((j >= i // s * s) | ((j + 1) % s == 0)),
    ),
    "inverted": ("It is inverted", lambda i, j, s: strided(i, j, s).logical_not()),
    "added": (
        "added to the scores",
        lambda i, j, s: torch.where(strided(i, j, s), 0.0, -torch.inf),
    ),
    "precedence": (
        "each comparison in parentheses",
        lambda i, j, s: (j <= i) & (i - j <= s | (i - j) % s == 0),
    ),
    "words": ("not `and`, `or`", lambda i, j, s: (i - j <= s) or ((i - j) % s == 0)),
    "row": ("Wrong shape", lambda i, j, s: strided(i, j, s)[0]),
    "None": ("`return`", lambda i, j, s: None),
    "other": ("where 0 is right", lambda i, j, s: (j <= i) & (i - j <= 2 * s)),
    "in place": (
        "`i` changed in place",
        lambda i, j, s: strided(i.clone(), j, s) | (i.add_(1) < 0),
    ),
}

SUMMARIES_WRONG: dict[str, tuple[str, Any]] = {
    "before": ("One column too many", lambda j, s, c: j % s >= s - c - 1),
    "fewer": ("One column is missing", lambda j, s, c: j % s > s - c),
    "literal": ("Long Range Arena", lambda j, s, c: (j % s >= s - c) | (j % s == 0)),
    "straddling": (
        "belong to two blocks",
        lambda j, s, c: (j % s >= s - c) | ((j % s == 0) & (j >= s)),
    ),
    "shifted": ("All columns are one too late", lambda j, s, c: (j - 1) % s >= s - c),
    "first": ("FIRST c", lambda j, s, c: j % s < c),
    "one": ("with residue s − c", lambda j, s, c: j % s == s - c),
    "last": ("the last of each block", lambda j, s, c: (j + 1) % s == 0),
    "no remainder": ("remainder, j % s, is missing", lambda j, s, c: j >= s - c),
    "exchanged": ("s and c are exchanged", lambda j, s, c: j % c >= c - s),
    "others": ("Reverse the comparison", lambda j, s, c: j % s < s - c),
    "all but": ("all but the first c", lambda j, s, c: j % s > c - 1),
    "ahead": ("turns the last residue", lambda j, s, c: (j + 1) % s >= s - c),
    "which block": ("the number of the block", lambda j, s, c: j // s >= s - c),
    "every": ("every c-th", lambda j, s, c: j % c == 0),
    "the end": ("end of the text", lambda j, s, c: j >= len(j) - c),
    "number": ("gave an int", lambda j, s, c: s - c),
    "in place": ("`j` changed in place", lambda j, s, c: j.remainder_(s) >= s - c),
}

TABLES = [(check_strided, STRIDED_WRONG), (check_summaries, SUMMARIES_WRONG)]
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "solution"), RIGHT)
def test_written_differently_is_right(check: Callable, solution: Callable) -> None:
    verdict = check(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "words", "solution"), WRONG, ids=[w[1] for w in WRONG])
def test_mistakes_by_name(
    check: Callable, words: str, solution: Any, refuses: Callable[..., None]
) -> None:
    refuses(check(solution), words)


@pytest.mark.parametrize(("check", "table"), TABLES)
def test_messages_differ(check: Callable, table: dict, tells_apart: Callable) -> None:
    tells_apart(check, table)
