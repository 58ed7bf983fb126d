"""Lesson 13's checks: visible summaries, means of uneven blocks, transient global attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import Verdict, check_block_means, check_transient, check_visible_slots
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
    options = long_t5.LongT5Options(radius=radius, block=block)
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


TestAnswers = answers_to(RIGHT)
