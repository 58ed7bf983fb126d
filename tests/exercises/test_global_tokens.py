"""Lesson 11's checks: the pairs of ETC, and BigBird's attention block by block."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_bigbird, check_etc_pairs
from attnlab.mechanisms.fixed import etc

Drawn = list[list[int]]


def by_mask(q: Tensor, k: Tensor, v: Tensor, block: int, drawn: Drawn, **more: Any) -> Tensor:
    """All pairs under a mask of blocks, once for each time that a block is a key."""
    times = multiplicity(len(q) // block, drawn, **more)
    times = times.repeat_interleave(block, 0).repeat_interleave(block, 1)
    weights = (q @ k.T / q.shape[1] ** 0.5).exp() * times
    return weights / weights.sum(-1, keepdim=True) @ v


def multiplicity(
    count: int,
    drawn: Drawn,
    *,
    offsets: tuple[int, ...] = (-1, 0, 1),
    ends: tuple[int, ...] = (0, -1),
    rows: bool = True,
    draws: bool = True,
    often: bool = False,
    everywhere: bool = False,
) -> Tensor:
    times = torch.zeros(count, count, dtype=torch.float64)
    for b in range(count):
        for offset in offsets:
            if 0 <= b + offset < count:
                times[b, b + offset] = 1
    for end in ends:
        times[:, end] = 1
    if rows:
        times[[0, -1]] = 1
    for b, links in enumerate(drawn if draws else []):
        for c in links:
            inner = 0 < b < count - 1 or everywhere
            times[b, c] = times[b, c] + 1 if often and inner else 1
    return times


def in_blocks(q: Tensor, k: Tensor, v: Tensor, block: int, drawn: Drawn) -> Tensor:
    """Only the chosen blocks."""
    times = multiplicity(len(q) // block, drawn) > 0
    out = []
    for b, row in enumerate(times):
        keys, values = (x.view(-1, block, x.shape[1])[row].flatten(0, 1) for x in (k, v))
        scores = q[b * block : (b + 1) * block] @ keys.T / q.shape[1] ** 0.5
        out.append(scores.softmax(-1) @ values)
    return torch.cat(out)


def masked(**more: Any) -> Callable[..., Tensor]:
    return lambda *given: by_mask(*given, **more)


def causal(q: Tensor, k: Tensor, v: Tensor, block: int, drawn: Drawn) -> Tensor:
    allowed = multiplicity(len(q) // block, drawn) > 0
    allowed = allowed.repeat_interleave(block, 0).repeat_interleave(block, 1).tril()
    scores = (q @ k.T / q.shape[1] ** 0.5).masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1) @ v


WRONG: dict[str, tuple[str, Any]] = {
    "twice": ("is counted twice, so", masked(often=True)),
    "everywhere": (
        "also for the first and the last block",
        masked(often=True, everywhere=True),
    ),
    "rows": ("global as queries", masked(rows=False)),
    "columns": ("missing among the keys", masked(ends=())),
    "first": ("Only the first block", masked(ends=(0,))),
    "no draws": ("drawn blocks are missing", masked(draws=False)),
    "no window": ("neighbours are missing", masked(offsets=(0,))),
    "no next": ("block after is missing", masked(offsets=(-1, 0))),
    "not itself": ("own block is missing", masked(offsets=(-1, 1))),
    "unscaled": (
        "not divided by √d",
        lambda q, *given: in_blocks(q * q.shape[1] ** 0.5, *given),
    ),
    "causal": ("not causal", causal),
    "mask": ("no pair is skipped", by_mask),
    "None": ("`return`", lambda *given: None),
}


def test_only_the_chosen_blocks_is_right() -> None:
    verdict = check_bigbird(in_blocks)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), WRONG.values(), ids=WRONG)
def test_mistakes_by_name(words: str, solution: Any, refuses: Callable[..., None]) -> None:
    refuses(check_bigbird(solution), words)


def test_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_bigbird, WRONG)


def test_messages_do_not_print_the_draws() -> None:
    assert "drawn 8 lists)" in check_bigbird(lambda *given: None).message


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (61_400, "some neighbours are missing"),
        (61_690, "counted twice"),
        (60_890, "attend to each other"),
        (41_290, "the text attends to them"),
        (20_890, "the text alone"),
        (40_400, "text to text is missing"),
        (51_370, "on each side"),
        (60_290, "itself as well"),
        (1_040_400, "full attention"),
    ],
)
def test_pairs_of_etc(pairs: int, words: str) -> None:
    counted = etc.GlobalLocal(global_tokens=20, radius=10).pattern().count(1020)
    assert check_etc_pairs(counted).right
    verdict = check_etc_pairs(pairs)
    assert not verdict.right
    assert words in verdict.message
