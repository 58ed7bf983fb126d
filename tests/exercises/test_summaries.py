"""Lesson 13's checks: visible summaries, means of uneven blocks, transient global attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import (
    Verdict,
    check_block_means,
    check_transient,
    check_visible_slots,
)
from attnlab.mechanisms.fixed import long_t5
from attnlab.mechanisms.fixed.memory_compressed import visible_slots
from tests.exercises.frame import answers_to


def by_loops(n: int, width: int, stride: int) -> Tensor:
    slots = range(0, n, stride)
    return torch.tensor(
        [[all(j <= i for j in range(t, t + width)) for t in slots] for i in range(n)]
    )


def shifted(by: int) -> Callable[[int, int, int], Tensor]:
    """Slots open so many positions after their last one."""

    def mask(n: int, width: int, stride: int) -> Tensor:
        i, first = torch.arange(n)[:, None], torch.arange(0, n, stride)
        return first + (width - 1 + by) <= i

    return mask


def parts(x: Tensor, block: int, real: Tensor) -> Tensor:
    out = []
    for piece, there in zip(x.split(block), real.split(block), strict=True):
        out.append(piece[there].mean(0) if there.any() else torch.zeros_like(x[0]))
    return torch.stack(out)


def folded(x: Tensor, block: int, real: Tensor) -> Tensor:
    more = -len(x) % block
    kept = F.pad(x.masked_fill(~real[:, None], 0), (0, 0, 0, more)).unflatten(0, (-1, block))
    counts = F.pad(real, (0, more)).unflatten(0, (-1, block)).sum(1)
    return kept.sum(1) / counts.clamp(min=1)[:, None]


def padded(x: Tensor, block: int) -> Tensor:
    return F.pad(x, (0, 0, 0, -len(x) % block)).unflatten(0, (-1, block))


def blocks_of(n: int, block: int, *, own: bool = False) -> list[list[int]]:
    """The positions of each block; what is left over joins the last, or is a block of its own."""
    starts = range(0, n if own else n // block * block, block)
    ends = [*list(starts)[1:], n]
    return [list(range(start, end)) for start, end in zip(starts, ends, strict=True)]


def rms(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt()


def transient_by_queries(
    x: Tensor, query: Tensor, key: Tensor, value: Tensor, radius: int, block: int,
    *, norm: Any = rms, blocks: Any = blocks_of, window: Any = None, scale: float = 1.0,
    outside: bool = False, parts: Any = lambda near, far: [torch.cat([near, far])],
) -> Tensor:  # fmt: skip
    """Query by query; the softmaxes over ``parts`` of the keys are added."""
    out = []
    for i in range(len(x)):
        near = [j for j in range(len(x)) if abs(i - j) <= radius and (not window or window(i, j))]
        groups = [g for g in blocks(len(x), block) if not outside or not set(g) & set(near)]
        far = torch.stack([norm(x[g].sum(0)) for g in groups]) if groups else x[:0]
        out.append(
            sum(
                (keys @ key @ (x[i] @ query) * scale).softmax(0) @ (keys @ value)
                for keys in parts(x[near], far)
            )
        )
    return torch.stack(out)


def transient_by_the_page(
    x: Tensor, query: Tensor, key: Tensor, value: Tensor, radius: int, block: int
) -> Tensor:
    summaries = rms(long_t5.sums(x[None], block))[0]
    q, k, v, global_k, global_v = (
        y[None, None] for y in (x @ query, x @ key, x @ value, summaries @ key, summaries @ value)
    )
    tables = torch.zeros(2, 1, 4, dtype=x.dtype)
    options = long_t5.TransientGlobal(radius=radius, block=block)
    return long_t5.naive(q, k, v, global_k, global_v, *tables, options=options)[0, 0]


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_visible_slots, by_loops),
    (check_visible_slots, shifted(0)),
    (
        check_visible_slots,
        lambda n, width, stride: visible_slots(n, n, width=width, stride=stride, causal=True),
    ),
    (check_transient, transient_by_queries),
    (check_transient, transient_by_the_page),
    (check_block_means, parts),
    (check_block_means, folded),
]

VISIBLE_WRONG: dict[str, tuple[str, Any]] = {
    "begun": (
        "as soon as it begins",
        lambda n, w, s: torch.arange(0, n, s) <= torch.arange(n)[:, None],
    ),
    "a position early": ("leaks by one", shifted(-1)),
    "by stride": (
        "where windows overlap",
        lambda n, width, stride: by_loops(n, stride, stride),
    ),
    "a position late": ("≤, not <", shifted(1)),
    "a block late": (
        "own block of `stride`",
        lambda n, w, s: torch.arange(-(-n // s)) < torch.arange(n)[:, None] // s,
    ),
    "a slot late": (
        "by a whole slot",
        lambda n, width, stride: shifted(stride)(n, width, stride),
    ),
    "floor": ("⌊n / stride⌋", lambda n, w, s: by_loops(n, w, s)[:, : n // s]),
    "fits": ("only full windows", lambda n, w, s: by_loops(n, w, s)[:, : (n - w) // s + 1]),
    "open": ("All queries see all slots", lambda n, w, s: by_loops(n, w, s) | True),
    "turned": ("It is inverted", lambda n, w, s: ~by_loops(n, w, s)),
    "tokens": ("as if a slot were one token", lambda n, w, s: torch.ones(n, -(-n // s)).tril() > 0),
    "transposed": ("transposed", lambda n, w, s: by_loops(n, w, s).mT),
    "row": ("Wrong shape", lambda n, w, s: by_loops(n, w, s)[0]),
    "None": ("`return`", lambda n, w, s: None),
    "raises": ("raised TypeError", lambda n, w, s: n + "slots"),
}

MEANS_WRONG: dict[str, tuple[str, Any]] = {
    "padding": ("Padding is in the mean: where", lambda x, c, real: parts(x, c, real | True)),
    "summed": (
        "Padding is in the sum",
        lambda x, c, real: (
            padded(x, c).sum(1) / padded(real[:, None].double(), c).sum(1).clamp(min=1)
        ),
    ),
    "block": (
        "divided by `block`, also",
        lambda x, c, real: padded(x * real[:, None], c).mean(1),
    ),
    "counted": (
        "but still counted",
        lambda x, c, real: parts(x * real[:, None], c, real | True),
    ),
    "behind the end": ("zeros after the end", lambda x, c, real: padded(x, c).mean(1)),
    "dropped": ("The remainder is dropped", lambda x, c, real: parts(x, c, real)[: len(x) // c]),
    "joined": (
        "as in LongT5",
        lambda x, c, real: torch.stack(
            [
                *parts(x, c, real)[: len(x) // c - 1],
                parts(x[len(x) // c * c - c :], 99, real[len(x) // c * c - c :])[0],
            ]
        ),
    ),
    "0 / 0": (
        "0 by 0",
        lambda x, c, real: torch.stack(
            [p[r].mean(0) for p, r in zip(x.split(c), real.split(c), strict=True)]
        ),
    ),
    "sums": ("These are sums", lambda x, c, real: padded(x * real[:, None], c).sum(1)),
    "interleaved": (
        "do not consist of neighbours",
        lambda x, c, real: torch.stack(
            [
                parts(x[t :: -(-len(x) // c)], 99, real[t :: -(-len(x) // c)])[0]
                for t in range(-(-len(x) // c))
            ]
        ),
    ),
    "one": ("Wrong shape", lambda x, c, real: x.mean(0)),
    "in place": ("still needs", lambda x, c, real: folded(x.mul_(real[:, None]), c, real)),
    "None": ("`return`", lambda x, c, real: None),
}


def other(**options: Any) -> Callable[..., Tensor]:
    return lambda *given: transient_by_queries(*given, **options)


TRANSIENT_WRONG: dict[str, tuple[str, Any]] = {
    "sums": ("not normalised", other(norm=lambda y: y)),
    "length": ("divided by their length", other(norm=lambda y: y / y.norm())),
    "own": ("a block of their own", other(blocks=lambda n, c: blocks_of(n, c, own=True))),
    "dropped": (
        "in no summary",
        other(blocks=lambda n, c: [g[:c] for g in blocks_of(n, c)]),
    ),
    "window": ("the window alone", other(parts=lambda near, far: [near])),
    "summaries": ("the summaries alone", other(parts=lambda near, far: [far])),
    "added": ("outputs are added", other(parts=lambda near, far: [near, far])),
    "halves": (
        "the mean of the outputs",
        lambda *given: other(parts=lambda near, far: [near, far])(*given) / 2,
    ),
    "outside": ("inside the window are left out", other(outside=True)),
    "past": ("not causal", other(window=lambda i, j: j <= i)),
    "scaled": ("divided by √d", lambda x, *more: other(scale=x.shape[1] ** -0.5)(x, *more)),
    "narrow": (
        "the whole window",
        lambda x, q, k, v, r, c: transient_by_queries(x, q, k, v, r // 2, c),
    ),
    "None": ("`return`", lambda *given: None),
}


def _means(x: Tensor, q: Tensor, k: Tensor, v: Tensor, r: int, c: int) -> Tensor:
    tokens = torch.cat([x, torch.stack([x[g].mean(0) for g in blocks_of(len(x), c)])])
    i = torch.arange(len(x))
    near = (i[:, None] - i).abs() <= r
    mask = torch.cat([near, near.new_ones(len(x), len(tokens) - len(x))], 1)
    return (x @ q @ (tokens @ k).T).masked_fill(~mask, -torch.inf).softmax(-1) @ (tokens @ v)


TRANSIENT_WRONG["means"] = ("means of the blocks", _means)

TABLES = [
    (check_visible_slots, VISIBLE_WRONG),
    (check_block_means, MEANS_WRONG),
    (check_transient, TRANSIENT_WRONG),
]


TestAnswers = answers_to(RIGHT, TABLES)
