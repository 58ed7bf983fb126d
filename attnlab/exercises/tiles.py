"""Checks of lesson 03: the online softmax, merging, a count, and causal attention in tiles."""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    Parts,
    changed_in_place,
    expect_tensors,
    part_faults,
    random_tensors,
    run,
    same,
)
from attnlab.exercises.exercise import Mistakes, but
from attnlab.exercises.parts import PartsExercise
from attnlab.exercises.verdict import Function, Mistake, returns_verdict, says

# ---- the online softmax

State = tuple[Tensor, Tensor, Tensor]
_STATE, _STATE_SHAPES = ("largest", "total", "out"), ("n 1", "n 1", "n e")


def _update(largest: Tensor, total: Tensor, out: Tensor, scores: Tensor, values: Tensor) -> State:
    """The right step; the mistakes below are wrong versions of it."""
    raised = torch.maximum(largest, _top(scores))
    shift = raised.masked_fill(raised == -torch.inf, 0)
    fade, powers = torch.exp(largest - shift), torch.exp(scores - shift)
    return raised, total * fade + powers.sum(-1, keepdim=True), out * fade + powers @ values


def _top(scores: Tensor) -> Tensor:
    return scores.amax(-1, keepdim=True)


def _mistaken_step(
    part: int, formula: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], object]
) -> Callable[..., object]:
    """A known mistake: a formula in (old sum, factor, the tile's part, old total, new total)."""

    def mistaken(*given: Tensor) -> object:
        largest, total, _, scores, values = given
        raised = torch.maximum(largest, _top(scores))
        fade, powers = torch.exp(largest - raised), torch.exp(scores - raised)
        added = (powers.sum(-1, keepdim=True), powers @ values)[part - 1]
        return formula(given[part], fade, added, total, _update(*given)[1])

    return mistaken


def _mistaken_powers(part: int, reference: Callable[..., Tensor]) -> Callable[..., object]:
    """The right step, but with the tile's exponentials relative to another maximum."""

    def mistaken(*given: Tensor) -> object:
        largest, _, _, scores, values = given
        fade = torch.exp(largest - torch.maximum(largest, _top(scores)))
        powers = torch.exp(scores - reference(largest, scores))
        return given[part] * fade + (powers.sum(-1, keepdim=True), powers @ values)[part - 1]

    return mistaken


def _sums(name: str, part: int) -> tuple[KnownMistake, ...]:
    """The mistakes that `total` (part 1) and `out` (part 2) have in common."""
    return (
        (
            f"It forgets to rescale `{name}`: the earlier sum was computed with the "
            f"old maximum. Multiply `{name}` by exp(old largest − new largest) before adding.",
            _mistaken_step(part, lambda old, fade, new, *_: old + new),
        ),
        (
            f"The new `{name}` forgets the tiles before: only this tile is in it.",
            _mistaken_step(part, lambda old, fade, new, *_: new),
        ),
        (
            f"This tile is not added to `{name}`: only the rescaling is done.",
            _mistaken_step(part, lambda old, fade, new, *_: old * fade),
        ),
        (
            f"The factor of `{name}` is inverted: exp(old largest − new largest) is at most 1.",
            _mistaken_step(part, lambda old, fade, new, *_: old / fade + new),
        ),
        (
            f"`{name}` rescales the new tile as well: only the earlier sum should be rescaled.",
            _mistaken_step(part, lambda old, fade, new, *_: (old + new) * fade),
        ),
        (
            f"The exponentials in `{name}` are relative to the old maximum: use the new one.",
            _mistaken_powers(part, lambda largest, scores: largest),
        ),
        (
            f"The exponentials in `{name}` are relative to the tile's own maximum: use the running "
            "one.",
            _mistaken_powers(part, lambda largest, scores: _top(scores)),
        ),
        (
            f"The exponentials in `{name}` have no maximum subtracted: they would overflow.",
            _mistaken_powers(part, lambda largest, scores: torch.zeros_like(largest)),
        ),
    )


_TOO_EARLY = (
    "It divides `out` too early: the state holds plain sums, and the division by `total` comes "
    "once, after the last tile."
)
_UPDATE_MISTAKEN: tuple[tuple[KnownMistake, ...], ...] = (
    (
        (
            "It uses the tile's own maximum rather than the running maximum: a later tile with "
            "smaller scores must not lower it.",
            lambda largest, total, out, scores, values: _top(scores),
        ),
        (
            "The maximum is not raised: `largest` came back as it was.",
            lambda largest, *_: largest,
        ),
        (
            "It takes one maximum for all rows: each query has its own.",
            lambda largest, total, out, scores, values: torch.maximum(largest, scores.max()),
        ),
        (
            "The state comes back in another order: it should be (largest, total, out).",
            lambda *given: _update(*given)[1],
        ),
    ),
    _sums("total", 1),
    (
        *_sums("out", 2),
        (
            _TOO_EARLY,
            _mistaken_step(2, lambda old, fade, new, _, total: (old * fade + new) / total),
        ),
        (
            _TOO_EARLY,
            _mistaken_step(2, lambda old, fade, new, was, total: (old * was * fade + new) / total),
        ),
        (
            _TOO_EARLY,
            _mistaken_step(2, lambda old, fade, new, was, total: old * fade + new / total),
        ),
        (
            _TOO_EARLY,
            _mistaken_step(
                2, lambda old, fade, new, was, total: old * fade + new / (total - was * fade)
            ),
        ),
        (
            "`out` adds the exponentials only: the tile should add `powers @ values`.",
            _mistaken_step(2, lambda old, fade, new, was, total: old * fade + total - was * fade),
        ),
    ),
)


@says(itertools.chain(*_UPDATE_MISTAKEN))
@returns_verdict
def check_online_softmax(function: Function) -> str:
    """Is it one tile of the online softmax? `update(largest, total, out, scores, values)`.

    It returns (largest, total, out): the running maximum (n, 1), the running sum (n, 1) of
    exp(score − largest), and (n, e), the same sum with each value in it, not yet divided. `scores`
    (n, c) and `values` (c, e) are the tile's. Before the first tile the state is −∞, 0, 0; a row
    may be fully masked in a tile: then all its scores are −∞. Called with n = 5, e = 3 and
    tiles of c = 7, 11.
    """
    begin = _begin(5, 3)
    first, second = _tile(7, seed=1), _tile(11, seed=2)
    _refuse_wrong_update(function, (*_update(*begin, *first), *second))
    _refuse_wrong_update(function, (*begin, *first), " This is the first tile.")
    _refuse_fully_masked_tile(function, begin, first, second)
    answer = run(function, _named_tile((*_update(*begin, *first), *second)))
    remark = f" One remark: {changed_in_place(answer)}" if answer.changed else ""
    return f"`largest`, `total` and `out` are right after every tile.{remark}"


def _begin(n: int, e: int) -> State:
    zeros = torch.zeros(n, e, dtype=torch.float64)
    return zeros[:, :1] - torch.inf, zeros[:, :1], zeros


def _tile(c: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scores and values; the later of two tiles has the larger maximum in some rows only."""
    scores, values = random_tensors((5, c), (c, 3), seed=seed)
    rise = torch.tensor([2.0, -2.0, 1.0, -1.0, 3.0], dtype=torch.float64) * seed
    return scores + rise[:, None], values


def _named_tile(given: Parts) -> Arguments:
    return dict(zip((*_STATE, "scores", "values"), given, strict=True))


def _refuse_wrong_update(function: Function, state_and_tile: Parts, when: str = "") -> None:
    given, truth = _named_tile(state_and_tile), _update(*state_and_tile)
    parts = expect_tensors(run(function, given), _STATE, _STATE_SHAPES, truth)
    blank = [name for name, x in zip(_STATE, parts, strict=True) if not x.isfinite().all()]
    if blank and when:
        raise Mistake(
            f"In the first tile `{blank[0]}` is not finite: the state begins with largest = −∞, "
            "and ∞ · 0 and −∞ − (−∞) are NaN. exp(−∞ − new largest) = 0 is the "
            "factor of the empty state."
        )
    faults = part_faults(parts, truth, given, _STATE, _UPDATE_MISTAKEN)
    if faults and not same(parts[0], truth[0]):
        faults = faults[:1]  # the other two are wrong because the maximum is
    if faults:
        raise Mistake(" ".join(faults) + when)


def _refuse_fully_masked_tile(
    function: Function, begin: State, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]
) -> None:
    """A fully masked row may have any maximum; its sums must be right after the next tile."""
    scores = first[0].clone()
    scores[1] = -torch.inf
    masked = (scores, first[1])
    after_one, after_both = _update(*begin, *masked), _update(*_update(*begin, *masked), *second)
    one = expect_tensors(
        run(function, _named_tile((*begin, *masked))), _STATE, _STATE_SHAPES, after_one
    )
    both = expect_tensors(
        run(function, _named_tile((*one, *second))), _STATE, _STATE_SHAPES, after_both
    )
    if any(x.isnan().any() for x in (*one, *both)):
        raise Mistake(
            "Right, except where a row is fully masked in the first tile: its largest score is −∞, "
            "and −∞ − (−∞) is NaN. Subtract 0 there instead of −∞."
        )
    if not (
        same(one[1:], after_one[1:]) and same(both[2] / both[1], after_both[2] / after_both[1])
    ):
        raise Mistake(
            "Right, except where a row is fully masked in a tile (all its scores are −∞): such "
            "a tile adds nothing to `total` and `out`."
        )


# ---- merging

_MERGED, _MERGED_SHAPES = ("out", "lse"), ("n e", "n 1")


def _merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    lse = torch.logaddexp(lse_a, lse_b)
    return out_a * torch.exp(lse_a - lse) + out_b * torch.exp(lse_b - lse), lse


_MERGE_MISTAKEN: tuple[tuple[KnownMistake, ...], ...] = (
    (
        (
            "A plain average: the part with the larger scores needs more weight. Multiply each "
            "part by exp(its lse − the new lse).",
            lambda a, la, b, lb: (a + b) / 2,
        ),
        (
            "The parts are added, but the weights of each already sum to one: use a weighted sum.",
            lambda a, la, b, lb: a + b,
        ),
        (
            "It uses lse itself as weight: lse is a logarithm, the weight is its exponential.",
            lambda a, la, b, lb: (a * la + b * lb) / (la + lb),
        ),
        (
            "The weights are exchanged: the weight of part a comes from lse_a.",
            lambda a, la, b, lb: _merge(a, lb, b, la)[0],
        ),
        (
            "`out` is not divided: the parts are multiplied by exponentials; divide by the sum "
            "of these.",
            lambda a, la, b, lb: a * la.exp() + b * lb.exp(),
        ),
        (
            "`out` is not divided: the parts are multiplied by exp(lse − the larger lse); "
            "divide by the sum of these two weights.",
            lambda a, la, b, lb: (
                a * (la - torch.maximum(la, lb)).exp() + b * (lb - torch.maximum(la, lb)).exp()
            ),
        ),
        (
            "The part with the larger lse takes everything: that is a maximum, not a merge.",
            lambda a, la, b, lb: torch.where(la > lb, a, b),
        ),
    ),
    (
        (
            "The two `lse` are added: they are logarithms; add their exponentials.",
            lambda a, la, b, lb: la + lb,
        ),
        (
            "`lse` is the larger of the two: the smaller part counts, too: "
            "log(exp lse_a + exp lse_b).",
            lambda a, la, b, lb: torch.maximum(la, lb),
        ),
        (
            "`lse` is the mean of the two; it should be log(exp lse_a + exp lse_b).",
            lambda a, la, b, lb: (la + lb) / 2,
        ),
        (
            "The logarithm is missing: `lse` is the sum of the exponentials itself.",
            lambda a, la, b, lb: la.exp() + lb.exp(),
        ),
        (
            "`lse` lacks the larger of the two: it was subtracted before the exponential "
            "and must be added again after the logarithm.",
            lambda a, la, b, lb: torch.logaddexp(la, lb) - torch.maximum(la, lb),
        ),
    ),
)


@says(itertools.chain(*_MERGE_MISTAKEN))
@returns_verdict
def check_merge(function: Function) -> str:
    """Does it merge two partial results exactly? `merge(out_a, lse_a, out_b, lse_b) -> (out, lse)`.

    Each part is the attention over some of the keys, `out` (n, e), and `lse` (n, 1), the logarithm
    of the sum of its exponentials (−∞ where no key is allowed). Called with n = 5, e = 3, with lse
    near 1 and near ±1000, and with one part empty.
    """
    given = _two_parts()
    _refuse_wrong_merge(function, given)
    for shift in (1e3, -1e3):
        _refuse_wrong_merge(
            function,
            {k: x + shift if k.startswith("lse") else x for k, x in given.items()},
            "Right for small lse, but wrong near ±1000: the exponential overflows or vanishes. "
            "Subtract the larger lse from both first.",
        )
    for name in ("a", "b"):
        _refuse_wrong_merge(
            function,
            {
                **given,
                f"out_{name}": torch.zeros_like(given[f"out_{name}"]),
                f"lse_{name}": torch.full_like(given[f"lse_{name}"], -torch.inf),
            },
            f"Right, except where part {name} saw no key: its lse is −∞ and its weight "
            "exp(−∞) = 0, so that the result is the other part.",
        )
    return "The merged result is that of one softmax over all keys."


def _two_parts() -> dict[str, Tensor]:
    out_a, lse_a, out_b, lse_b = random_tensors((5, 3), (5, 1), (5, 3), (5, 1), seed=3)
    return {"out_a": out_a, "lse_a": lse_a + 1, "out_b": out_b, "lse_b": lse_b + 1}


def _refuse_wrong_merge(function: Function, given: dict[str, Tensor], instead: str = "") -> None:
    truth = _merge(*given.values())
    parts = expect_tensors(run(function, given), _MERGED, _MERGED_SHAPES, truth)
    faults = part_faults(parts, truth, given, _MERGED, _MERGE_MISTAKEN)
    near = all(torch.allclose(a, b, 1e-3, 1e-3) for a, b in zip(parts, truth, strict=True))
    if faults and not (instead and near):  # near 1000, float32 has four decimals
        raise Mistake(instead or " ".join(faults))


# ---- the bytes of the matrix that is not written down

check_score_bytes = NumberExercise(
    "Is it what the scores of 4 heads and 8,192 tokens take in float32?",
    right=4 * 4 * 8192 * 8192,
    unit="bytes",
    mistakes={
        8192 * 8192: "Heads and bytes are missing: there are 4 matrices of 4-byte numbers.",
        3 * 4 * 4 * 8192 * 8192: (
            "That is the peak of `naive`, which holds three such blocks at once."
        ),
        4 * 4 * 8192 * 64: (
            "That is one tensor of queries, keys or values; a score belongs to a pair."
        ),
    },
)


# ---- causal attention in tiles


def _in_tiles(
    q: Tensor, k: Tensor, v: Tensor, tile: int, *,
    past: bool = True, scale: float | None = None, fade: bool = True, whole: bool = False,
    first: int = 0, divide: bool = True, logarithm: bool = True, largest: bool = True,
) -> Parts:  # fmt: skip
    n, d = q.shape
    running = torch.full((n, 1), -torch.inf, dtype=q.dtype)
    total, out = torch.zeros_like(running), torch.zeros(n, v.shape[1], dtype=q.dtype)
    for start in range(0, n - n % tile if whole else n, tile):
        here = slice(start, start + tile)
        scores = q @ k[here].T * (d**-0.5 if scale is None else scale)
        later = torch.arange(n)[here] + first > torch.arange(n)[:, None]
        scores = scores.masked_fill(later, -torch.inf) if past else scores
        raised = torch.maximum(running, _top(scores))
        shift = raised.masked_fill(raised == -torch.inf, 0)
        kept = torch.exp(running - shift) if fade else torch.ones_like(running)
        powers = torch.exp(scores - shift)
        total = total * kept + powers.sum(-1, keepdim=True)
        out, running = out * kept + powers @ v[here], raised
    lse = (total.log() if logarithm else total) + (running if largest else 0)
    return (out / total if divide else out), lse


def _in_both(name: str) -> Mistakes:
    """What can be wrong in `out` and in `lse`."""
    return {
        but(past=False): (
            f"`{name}`: the causal mask is missing, query i attends to keys j ≤ i. In a tile on "
            "the diagonal some pairs are allowed and some are not."
        ),
        but(first=1): (
            f"`{name}`: a query may not attend to itself. The mask allows j ≤ i, not j < i."
        ),
        but(scale=1.0): f"`{name}`: the scores are not scaled by 1/√d.",
        but(fade=False): (
            f"`{name}`: earlier sums are not multiplied by exp(old maximum − new maximum)."
        ),
        but(whole=True): (
            f"`{name}`: the last tile is missing: n need not be a multiple of the tile."
        ),
    }


def _tiled_cases() -> Iterator[Arguments]:
    q, k, v = random_tensors((7, 5), (7, 5), (7, 3), seed=23)
    for tile in (2, 3, 7):
        yield {"q": 2 * q, "k": k, "v": v, "tile": tile}


check_tiled_attention = PartsExercise(
    """Is it causal attention, one tile of keys at a time? `attend(q, k, v, tile) -> (out, lse)`.

    `q` and `k` are (n, d), `v` is (n, e); `out` is (n, e), `lse` (n, 1). Called with n = 7, d = 5,
    e = 3 and tiles of 2, 3 and 7.
    """,
    right=_in_tiles,
    cases=_tiled_cases,
    axes={"out": "n e", "lse": "n 1"},
    of_part={
        "out": {
            **_in_both("out"),
            but(divide=False): "`out` is not divided by the running sum.",
        },
        "lse": {
            **_in_both("lse"),
            but(logarithm=False): "`lse` lacks the logarithm of the running sum.",
            but(largest=False): "`lse` lacks the running maximum: it is m + log ℓ.",
        },
    },
    praise="The same as the softmax of the whole rows, for every size of the tile.",
)
