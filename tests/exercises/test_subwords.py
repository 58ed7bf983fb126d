"""Lesson 43's checks: the ids of bytes, and the candidates of one block size."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_byte_ids, check_candidates
from attnlab.mechanisms.positions.byte_embedding import encode


def by_loops(x: Tensor, size: int) -> Tensor:
    return torch.stack([x[i // size * size :][:size].mean(0) for i in range(len(x))])


def blocks(x: Tensor, size: int) -> Tensor:
    return F.pad(x, (0, 0, 0, -len(x) % size)).unflatten(0, (-1, size))


def repeated(x: Tensor, size: int) -> Tensor:
    means = torch.stack([part.mean(0) for part in x.split(size)])
    return means.repeat_interleave(size, dim=0)[: len(x)]


def sliding(x: Tensor, before: int, after: int) -> Tensor:
    return torch.stack([x[max(0, i - before) : i + after + 1].mean(0) for i in range(len(x))])


def dealt(x: Tensor, size: int) -> Tensor:
    count = -(-len(x) // size)
    return torch.stack([x[i % count :: count].mean(0) for i in range(len(x))])


def ids(text: str, first: int = 3, end: tuple[int, ...] = (1,)) -> Tensor:
    return torch.tensor([*(byte + first for byte in text.encode()), *end])


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_byte_ids, lambda text: torch.tensor(encode(text))),
    (check_byte_ids, lambda text: F.pad(ids(text, end=()), (0, 1), value=1)),
    (check_candidates, by_loops),
    (check_candidates, repeated),
]

IDS_WRONG: dict[str, tuple[str, Any]] = {
    "endless": ("The end is missing", lambda text: ids(text, end=())),
    "letters": ("not bytes", lambda text: torch.tensor([*(ord(c) + 3 for c in text), 1])),
    "unmoved": ("not moved by 3", lambda text: ids(text, 0)),
    "end moved": ("moved by 3 as well", lambda text: ids(text, end=(4,))),
    "by two": ("moved by 2", lambda text: ids(text, 2)),
    "padded": ("ends with padding", lambda text: ids(text, end=(0,))),
    "a list": ("gave a list", encode),
    "None": ("`return`", lambda text: None),
}

CANDIDATES_WRONG: dict[str, tuple[str, Any]] = {
    "blocks": ("one mean each", lambda x, size: repeated(x, size)[::size]),
    "as a whole": (
        "(1 2 1 2)",
        lambda x, size: torch.cat([repeated(x, size)[::size]] * size)[: len(x)],
    ),
    "by size": (
        "divided by `size`",
        lambda x, size: blocks(x, size).mean(1).repeat_interleave(size, dim=0)[: len(x)],
    ),
    "cut": ("last block is missing", lambda x, size: by_loops(x, size)[: len(x) // size * size]),
    "sums": (
        "These are sums",
        lambda x, size: blocks(x, size).sum(1).repeat_interleave(size, dim=0)[: len(x)],
    ),
    "before": ("those before it", lambda x, size: sliding(x, size - 1, 0)),
    "after": ("those after it", lambda x, size: sliding(x, 0, size - 1)),
    "dealt": ("every ⌈n / size⌉-th", dealt),
    "one": ("Wrong shape", lambda x, size: x.mean(0)),
    "None": ("gave None", lambda x, size: None),
}

TABLES = [(check_byte_ids, IDS_WRONG), (check_candidates, CANDIDATES_WRONG)]
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
