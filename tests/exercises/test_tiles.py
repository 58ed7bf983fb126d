"""Lesson 03's checks: one tile of the online softmax, and the merge of two partial results."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_merge, check_online_softmax, check_tiled_attention
from tests.exercises.frame import answers_to

State = tuple[Tensor, Tensor, Tensor]


def top(scores: Tensor) -> Tensor:
    return scores.amax(-1, keepdim=True)


def safe(largest: Tensor) -> Tensor:
    return largest.masked_fill(largest == -torch.inf, 0)


def step(
    *,
    new: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
    fade_total: Callable[[Tensor, Tensor], Tensor] = lambda old, new: (old - safe(new)).exp(),
    fade_out: Callable[[Tensor, Tensor], Tensor] | None = None,
    powers: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda s, old, new: (s - safe(new)).exp(),
    finish: Callable[[Tensor, Tensor], Tensor] = lambda out, total: out,
) -> Callable[..., State]:
    """The right update, with one part exchanged."""

    def update(
        largest: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor
    ) -> State:
        raised = new(largest, top(scores))
        p = powers(scores, largest, raised)
        total = total * fade_total(largest, raised) + p.sum(-1, keepdim=True)
        out = out * (fade_out or fade_total)(largest, raised) + p @ values
        return raised, total, finish(out, total)

    return update


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


right = step()

UPDATE_RIGHT = {
    "plain": right,
    "rows": by_rows,
    "in place": in_place,
    "a list": lambda *given: list(right(*given)),
    "floor": with_floor,
}


def normalised(
    largest: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor
) -> State:
    """The first FlashAttention's state: `out` is divided after each tile."""
    new, t, o = right(largest, total, out * total, scores, values)
    return new, t, o / t


def tile_normalised(*given: Tensor) -> State:
    new, t, _ = right(*given)
    largest, _, out, scores, values = given
    return new, t, out * (largest - new).exp() + (scores - new).softmax(-1) @ values


def values_lost(*given: Tensor) -> State:
    new, t, _ = right(*given)
    largest, _, out, scores, _ = given
    return new, t, out * (largest - new).exp() + (scores - new).exp().sum(-1, keepdim=True)


def divide_by_old_total(*given: Tensor) -> State:
    """Right in the middle, 0/0 at the beginning."""
    new, t, o = right(*given)
    return new, t, o / given[1] * given[1]


def ones(old: Tensor, new: Tensor) -> Tensor:
    return torch.ones_like(new)


def zeros(old: Tensor, new: Tensor) -> Tensor:
    return torch.zeros_like(new)


def upside_down(old: Tensor, new: Tensor) -> Tensor:
    return (new - old).exp()


def plain_fade(old: Tensor, new: Tensor) -> Tensor:
    return (old - new).exp()


def ignores_blind(*given: Tensor) -> State:
    """A row without allowed keys is treated as if its scores were all zero."""
    scores = given[3]
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    return right(*given[:3], scores.masked_fill(blind, 0), given[4])


UPDATE_WRONG = {
    "both fades": ("forgets to rescale `total`", step(fade_total=ones)),
    "fade total": ("forgets to rescale `total`", step(fade_total=ones, fade_out=plain_fade)),
    "fade out": ("forgets to rescale `out`", step(fade_out=ones)),
    "forgets out": ("The new `out` forgets the tiles before", step(fade_out=zeros)),
    "forgets total": (
        "The new `total` forgets the tiles before",
        step(fade_total=zeros, fade_out=plain_fade),
    ),
    "upside down": ("The factor of `total` is inverted", step(fade_total=upside_down)),
    "out upside down": ("The factor of `out` is inverted", step(fade_out=upside_down)),
    "tile's maximum": (
        "the tile's own maximum rather than the running",
        step(new=lambda old, tile: tile),
    ),
    "not raised": ("The maximum is not raised", step(new=lambda old, tile: old)),
    "one maximum": (
        "one maximum for all rows",
        step(new=lambda old, tile: torch.maximum(old, tile.max())),
    ),
    "old powers": (
        "`total` are relative to the old maximum",
        step(powers=lambda s, old, new: (s - old).exp()),
    ),
    "tile's powers": (
        "`total` are relative to the tile's own",
        step(powers=lambda s, old, new: (s - top(s)).exp()),
    ),
    "bare powers": ("`total` have no maximum subtracted", step(powers=lambda s, old, new: s.exp())),
    "divides": ("divides `out` too early", step(finish=lambda out, total: out / total)),
    "normalised": ("divides `out` too early", normalised),
    "tile divided": ("divides `out` too early", tile_normalised),
    "values lost": ("adds the exponentials only", values_lost),
    "fades all": (
        "`out` rescales the new tile as well",
        lambda a, t, o, s, v: (
            *right(a, t, o, s, v)[:2],
            (o + (s - torch.maximum(a, top(s))).exp() @ v) * (a - torch.maximum(a, top(s))).exp(),
        ),
    ),
    "only fades": (
        "This tile is not added to `out`",
        lambda a, t, o, s, v: (*right(a, t, o, s, v)[:2], o * (a - torch.maximum(a, top(s))).exp()),
    ),
    "order": (
        "in another order",
        lambda *given: (right(*given)[1], right(*given)[0], right(*given)[2]),
    ),
    "other": ("`out` gave", lambda *given: (*right(*given)[:2], right(*given)[2] * 1.5)),
    "first tile": ("In the first tile `out` is not finite", divide_by_old_total),
    "blind row": (
        "−∞ − (−∞) is NaN",
        step(fade_total=plain_fade, powers=lambda s, old, new: (s - new).exp()),
    ),
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
    "None": ("`return`", lambda *given: None),
    "raises": ("raised RuntimeError", lambda a, t, o, s, v: (a, t, v @ s)),
}


@pytest.mark.parametrize("solution", UPDATE_RIGHT.values(), ids=UPDATE_RIGHT)
def test_update_written_differently_is_right(solution: Callable[..., State]) -> None:
    verdict = check_online_softmax(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), UPDATE_WRONG.values(), ids=UPDATE_WRONG)
def test_update_mistakes_by_name(words: str, solution: object, refuses: Callable) -> None:
    refuses(check_online_softmax(solution), words)


def test_update_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_online_softmax, {k: v for k, v in UPDATE_WRONG.items() if k != "both fades"})


def test_two_faults_are_both_reported() -> None:
    message = check_online_softmax(UPDATE_WRONG["both fades"][1]).message
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


def adds(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    big = torch.maximum(la, lb)
    return a * (la - big).exp() + b * (lb - big).exp(), by_logaddexp(a, la, b, lb)[1]


def fears_nothing(a: Tensor, la: Tensor, b: Tensor, lb: Tensor) -> Parts:
    """−∞ − lse is multiplied by what it weighs before it is exponentiated."""
    out, lse = by_logaddexp(a, la, b, lb)
    return out + 0 * lb.clamp_max(0), lse


def with_out(out: Callable[..., Tensor]) -> Callable[..., Parts]:
    return lambda *given: (out(*given), by_logaddexp(*given)[1])


def with_lse(lse: Callable[..., Tensor]) -> Callable[..., Parts]:
    return lambda *given: (by_logaddexp(*given)[0], lse(given[1], given[3]))


MERGE_RIGHT = {
    "logaddexp": by_logaddexp,
    "softmax": by_softmax,
    "sigmoid": by_sigmoid,
    "largest": by_largest,
    "float32": lambda *parts: by_logaddexp(*(part.float() for part in parts)),
}
MERGE_WRONG = {
    "average": ("A plain average", with_out(lambda a, la, b, lb: (a + b) / 2)),
    "sum": ("The parts are added", with_out(lambda a, la, b, lb: a + b)),
    "by lse": (
        "It uses lse itself as weight",
        with_out(lambda a, la, b, lb: (a * la + b * lb) / (la + lb)),
    ),
    "exchanged": (
        "The weights are exchanged",
        with_out(lambda a, la, b, lb: by_logaddexp(a, lb, b, la)[0]),
    ),
    "not divided": (
        "`out` is not divided: the parts are multiplied by exponentials",
        with_out(lambda a, la, b, lb: a * la.exp() + b * lb.exp()),
    ),
    "not divided by two weights": ("the sum of these two weights", adds),
    "maximum": ("takes everything", with_out(lambda a, la, b, lb: torch.where(la > lb, a, b))),
    "overflow": ("wrong near ±1000", naive),
    "lse sum": ("The two `lse` are added", with_lse(lambda la, lb: la + lb)),
    "lse maximum": ("`lse` is the larger of the two", with_lse(torch.maximum)),
    "lse mean": ("`lse` is the mean", with_lse(lambda la, lb: (la + lb) / 2)),
    "no logarithm": ("The logarithm is missing", with_lse(lambda la, lb: la.exp() + lb.exp())),
    "lse lacks": (
        "`lse` lacks the larger",
        with_lse(lambda la, lb: torch.logaddexp(la, lb) - torch.maximum(la, lb)),
    ),
    "empty part": ("where part b saw no key", fears_nothing),
    "out only": (
        "gave one tensor; it should give (out, lse)",
        lambda *given: by_logaddexp(*given)[0],
    ),
    "shape": ("Wrong shape: `lse` from", with_lse(lambda la, lb: torch.logaddexp(la, lb)[:, 0])),
    "other": ("`out` gave", with_out(lambda a, la, b, lb: a * 3)),
    "raises": ("out_b (5, 3), lse_b (5, 1)) raised ZeroDivisionError", lambda *given: 1 / 0),
}


TestMerge = answers_to(
    [(check_merge, solution) for solution in MERGE_RIGHT.values()], [(check_merge, MERGE_WRONG)]
)


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
