"""Lesson 03's checks: one tile of the online softmax, and the merge of two partial results."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_merge, check_online_softmax, check_tiled_attention, tiles
from tests.exercises.frame import answers_to

State = tuple[Tensor, Tensor, Tensor]


def top(scores: Tensor) -> Tensor:
    return scores.amax(-1, keepdim=True)


def safe(largest: Tensor) -> Tensor:
    return largest.masked_fill(largest == -torch.inf, 0)


def right(largest: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> State:
    raised = torch.maximum(largest, top(scores))
    fade, p = (largest - safe(raised)).exp(), (scores - safe(raised)).exp()
    return raised, total * fade + p.sum(-1, keepdim=True), out * fade + p @ values


def by_rows(largest: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> State:
    rows = []
    for big, t, o, row in zip(largest, total, out, scores, strict=True):
        new = max(big.item(), row.max().item())
        shift = 0.0 if new == float("-inf") else new
        fade, p = (big - shift).exp(), (row - shift).exp()
        rows.append((torch.full_like(big, new), t * fade + p.sum(), o * fade + p @ values))
    return tuple(torch.stack(x) for x in zip(*rows, strict=True))  # type: ignore[return-value]


def in_place(largest: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> State:
    raised, _, _ = right(largest, total, out, scores, values)
    fade, p = (largest - safe(raised)).exp(), (scores - safe(raised)).exp()
    total.mul_(fade).add_(p.sum(-1, keepdim=True))
    out *= fade
    out += p @ values
    return raised, total, out


def with_floor(*given: Tensor) -> State:
    """−∞ is kept out of the state by a large negative number: any reference will do."""
    largest, total, out, scores, values = given
    raised = torch.maximum(largest, top(scores)).clamp_min(-1e30)
    fade, p = (largest - raised).exp(), (scores - raised).exp()
    return raised, total * fade + p.sum(-1, keepdim=True), out * fade + p @ values


def divide_by_old_total(*given: Tensor) -> State:
    """Right in the middle, 0/0 at the beginning."""
    new, t, o = right(*given)
    return new, t, o / given[1] * given[1]


def not_rescaled(*given: Tensor) -> State:
    _, total, out, scores, values = given
    p = (scores - right(*given)[0]).exp()
    return right(*given)[0], total + p.sum(-1, keepdim=True), out + p @ values


def without_safe(*given: Tensor) -> State:
    largest, total, out, scores, values = given
    raised = torch.maximum(largest, top(scores))
    fade, p = (largest - raised).exp(), (scores - raised).exp()
    return raised, total * fade + p.sum(-1, keepdim=True), out * fade + p @ values


def ignores_blind(*given: Tensor) -> State:
    """A row without allowed keys is treated as if its scores were all zero."""
    scores = given[3]
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    return right(*given[:3], scores.masked_fill(blind, 0), given[4])


UPDATE_WRONG = {
    "both fades": ("forgets to rescale `total`", not_rescaled),
    "other": ("`out` gave", lambda *given: (*right(*given)[:2], right(*given)[2] * 1.5)),
    "first tile": ("In the first tile `out` is not finite", divide_by_old_total),
    "blind row": ("−∞ − (−∞) is NaN", without_safe),
    "blind as zeros": ("such a tile adds nothing", ignores_blind),
    "one tensor": (
        "gave one tensor; it should give (largest, total, out)",
        lambda *given: right(*given)[2],
    ),
    "two": ("gave 2 values", lambda *given: right(*given)[:2]),
    "flat": (
        "Wrong shape: `largest` from",
        lambda *given: (right(*given)[0][:, 0], *right(*given)[1:]),
    ),
}
TestUpdate = answers_to(
    [
        (check_online_softmax, solution)
        for solution in [right, by_rows, in_place, with_floor, lambda *given: list(right(*given))]
    ],
    [(check_online_softmax, UPDATE_WRONG)],
)


def test_two_faults_are_both_reported() -> None:
    message = check_online_softmax(not_rescaled).message
    assert "rescale `total`" in message
    assert "rescale `out`" in message


def test_in_place_is_remarked_upon() -> None:
    assert "`total` and `out` changed in place" in check_online_softmax(in_place).message
    assert "remark" not in check_online_softmax(right).message


# ---- merging

Parts = tuple[Tensor, Tensor]


def by_logaddexp(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    lse = torch.logaddexp(la, lb)
    return a * (la - lse).exp() + b * (lb - lse).exp(), lse


def by_softmax(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    both = torch.cat([la, lb], dim=1)
    weights = both.softmax(-1)
    return weights[:, :1] * a + weights[:, 1:] * b, both.logsumexp(-1, keepdim=True)


def by_sigmoid(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    return b + (a - b) * torch.sigmoid(la - lb), torch.logaddexp(la, lb)


def by_largest(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    big = torch.maximum(la, lb)
    wa, wb = (la - big).exp(), (lb - big).exp()
    return (a * wa + b * wb) / (wa + wb), big + (wa + wb).log()


def naive(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    wa, wb = la.exp(), lb.exp()
    return (a * wa + b * wb) / (wa + wb), (wa + wb).log()


def fears_nothing(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    """−∞ − lse is multiplied by what it weighs before it is exponentiated."""
    out, lse = by_logaddexp(a, la, b, lb)
    return out + 0 * lb.clamp_max(0), lse


MERGE_WRONG = {
    "overflow": ("wrong near ±1000", naive),
    "empty part": ("where part b saw no key", fears_nothing),
    "out only": (
        "gave one tensor; it should give (out, lse)",
        lambda *given: by_logaddexp(*given)[0],
    ),
    "shape": (
        "Wrong shape: `lse` from",
        lambda *given: (by_logaddexp(*given)[0], by_logaddexp(*given)[1][:, 0]),
    ),
    "other": ("`out` gave", lambda *given: (3 * given[0], by_logaddexp(*given)[1])),
}
TestMerge = answers_to(
    [(check_merge, solution) for solution in [by_logaddexp, by_softmax, by_sigmoid, by_largest]],
    [(check_merge, MERGE_WRONG)],
)


# ---- the mistakes that the library lists for each part of a result


def listed() -> Iterator[Any]:
    for check, whole, listed in (
        (check_online_softmax, right, tiles._UPDATE_MISTAKEN),
        (check_merge, by_logaddexp, tiles._MERGE_MISTAKEN),
    ):
        for part, mistakes in enumerate(listed):
            for sentence, formula in mistakes:
                yield pytest.param(check, whole, part, sentence, formula, id=sentence[:40])


@pytest.mark.parametrize(("check", "whole", "part", "sentence", "formula"), list(listed()))
def test_a_mistake_in_one_part_is_named(
    check: Any, whole: Any, part: int, sentence: str, formula: Any
) -> None:
    def solution(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(formula(*given) if i == part else x for i, x in enumerate(whole(*given)))

    assert check(solution).message == sentence


# ---- causal attention in tiles


def by_whole_rows(q: Tensor, k: Tensor, v: Tensor, tile: int) -> Parts:
    scores = (q @ k.T / 5**0.5).masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


def by_merging(q: Tensor, k: Tensor, v: Tensor, tile: int) -> Parts:
    """Finished parts of each tile, merged."""
    out, lse = torch.zeros_like(v), torch.full((7, 1), -torch.inf, dtype=v.dtype)
    for start in range(0, 7, tile):
        keys = slice(start, start + tile)
        hidden = torch.arange(7)[keys] > torch.arange(7)[:, None]
        scores = (q @ k[keys].T * 5**-0.5).masked_fill(hidden, -torch.inf)
        both = torch.logaddexp(lse, scores.logsumexp(-1, keepdim=True))
        out = out * (lse - both).exp() + (scores - both).exp() @ v[keys]
        lse = both
    return out, lse


TestTiledAttention = answers_to(
    [(check_tiled_attention, by_whole_rows), (check_tiled_attention, by_merging)]
)
